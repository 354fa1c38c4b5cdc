/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NBD_OPT_STARTTLS.
 */
#include "config.h"
#include "connection.h"
#include "log.h"
#include "options.h"
#include "wire.h"

enum outcome
option_starttls (struct negotiation *n)
{
    answer_error (&n->answer, NBD_REP_ERR_POLICY, "there is no TLS here");
    return HAGGLE;
}
