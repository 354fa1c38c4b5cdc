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

#ifdef HAVE_GNUTLS
#define NO_TLS NBD_REP_ERR_POLICY
#else
#define NO_TLS NBD_REP_ERR_PLATFORM
#endif

static enum outcome
start (struct negotiation *n)
{
    struct connection *c = n->c;

    /* What came in the clear behind STARTTLS may be somebody else's, and must
     * not be run as if it had come over TLS (OPT-STARTTLS-05). */
    if (conn_pending (c) != 0) {
        log_client_error ("bytes follow STARTTLS in the clear");
        return DROP;
    }
    answer_ack (&n->answer);
    if (answer_send (&n->answer, c) == -1)
        return DROP;
    options_forget (n); /* OPT-STARTTLS-03 */
    if (tls_server_handshake (c) == -1)
        return DROP; /* TLS-16 */
    c->tls = true;
    return HAGGLE;
}

enum outcome
option_starttls (struct negotiation *n)
{
    if (n->length != 0)
        answer_error (&n->answer, NBD_REP_ERR_INVALID,
                      "STARTTLS takes no data");
    else if (n->c->tls) /* TLS-12 */
        answer_error (&n->answer, NBD_REP_ERR_INVALID, "TLS is on already");
    else if (config.tls == TLS_OFF) /* TLS-09 */
        answer_error (&n->answer, NO_TLS, "there is no TLS here");
    else
        return start (n);
    return HAGGLE;
}
