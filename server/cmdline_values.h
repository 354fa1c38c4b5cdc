/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The values of options.  What cannot be read ends the process with status 1
 * and a line that names the option, WHAT, and what was expected.
 */
#ifndef NBDSPEC_CMDLINE_VALUES_H
#define NBDSPEC_CMDLINE_VALUES_H

#include <stdint.h>

#include "config.h"

uint32_t parse_number (const char *what, const char *text, uint32_t max);

/* Seconds: "30", "30s", "500ms"; parts of a second count as a whole one. */
unsigned parse_seconds (const char *what, const char *text);

/* malloc'ed */
char *absolute_path (const char *what, const char *path);

enum tls_mode parse_tls (const char *text);
enum python_buffer parse_python_buffer (const char *text);

#endif
