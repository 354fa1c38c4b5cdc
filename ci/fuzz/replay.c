/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs inputs without a fuzzer: replay FILE...  For seeds and past finds, in
 * any build; a crash or a sanitizer's report is the failure.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size);

#define MAX_INPUT (1U << 20)

int
main (int argc, char **argv)
{
    static uint8_t data[MAX_INPUT];

    for (int i = 1; i < argc; i++) {
        FILE *f = fopen (argv[i], "re");
        size_t size;

        if (!f) {
            perror (argv[i]);
            return EXIT_FAILURE;
        }
        size = fread (data, 1, sizeof data, f);
        fclose (f);
        fprintf (stderr, "%s\n", argv[i]); /* the last one is it */
        LLVMFuzzerTestOneInput (data, size);
    }
    printf ("%d inputs replayed\n", argc - 1);
    return EXIT_SUCCESS;
}
