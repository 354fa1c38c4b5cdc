/* SPDX-License-Identifier: BSD-3-Clause
 *
 * NBD_OPT_STARTTLS.
 */
#include "config.h"
#include "connection.h"
#include "log.h"
#include "options.h"
#include "tls.h"
#include "wire.h"

enum outcome
option_starttls (struct negotiation *n)
{
    struct connection *c = n->c;

    if (n->length > 0) { /* OPT-STARTTLS-02 */
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "STARTTLS has no data");
        return HAGGLE;
    }
    if (config.tls == TLS_OFF) { /* TLS-09 */
        answer_error (&n->answer, NBD_REP_ERR_POLICY, "there is no TLS here");
        return HAGGLE;
    }
    if (c->tls) { /* TLS-12 */
        answer_error (&n->answer, NBD_REP_ERR_INVALID, "TLS is active already");
        return HAGGLE;
    }
    /* A client waits for the reply before it goes on.  Whatever came with
     * STARTTLS may have been put there by somebody else (OPT-STARTTLS-05). */
    if (conn_pending (c) > 0) {
        log_client_error ("plain text sent behind STARTTLS");
        return DROP;
    }
    answer_ack (&n->answer);
    if (answer_send (&n->answer, c) == -1 || tls_server_handshake (c) == -1)
        return DROP;
    options_forget (n); /* OPT-STARTTLS-03 */
    c->tls = true;
    return HAGGLE; /* with nothing left to send */
}
