/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a client is told about where the server is: --run and --print-uri.
 */
#ifndef NBDSPEC_URI_H
#define NBDSPEC_URI_H

/* The URI of the server; malloc'ed, NULL when there is no memory. */
char *uri_make (void);

/* TEXT as one word for a shell; malloc'ed, NULL when there is no memory. */
char *shell_quote (const char *text);

#endif
