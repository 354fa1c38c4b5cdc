/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls.h"

#include "config.h"
#include "log.h"

int
tls_setup (void)
{
    config.tls = TLS_OFF;
    return 0;
}
