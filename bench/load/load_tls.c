/* One session a connection. */
#include "load_tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <stdlib.h>

#define PATIENCE_MS 10000

struct load_tls {
    gnutls_session_t session;
};

static gnutls_certificate_credentials_t credentials;

static int shake_hands(gnutls_session_t session, int fd) {
    for (;;) {
        int code = gnutls_handshake(session);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (code == 0) return 0;
        if (gnutls_error_is_fatal(code)) return -1;
        if (code != GNUTLS_E_AGAIN) continue;
        if (gnutls_record_get_direction(session) != 0) wait.events = POLLOUT;
        if (poll(&wait, 1, PATIENCE_MS) <= 0) return -1;
    }
}

struct load_tls *load_tls_new(int fd) {
    struct load_tls *tls = calloc(1, sizeof *tls);
    struct pollfd connected = {.fd = fd, .events = POLLOUT};
    if (tls == NULL) return NULL;
    if ((credentials == NULL && gnutls_certificate_allocate_credentials(&credentials) != 0) ||
        poll(&connected, 1, PATIENCE_MS) <= 0 ||
        gnutls_init(&tls->session, GNUTLS_CLIENT | GNUTLS_NONBLOCK) != 0 ||
        gnutls_set_default_priority(tls->session) != 0 ||
        gnutls_credentials_set(tls->session, GNUTLS_CRD_CERTIFICATE, credentials) != 0) {
        load_tls_free(tls);
        return NULL;
    }
    gnutls_transport_set_int(tls->session, fd);
    if (shake_hands(tls->session, fd) == 0) return tls;
    load_tls_free(tls);
    return NULL;
}

void load_tls_free(struct load_tls *tls) {
    if (tls == NULL) return;
    if (tls->session != NULL) gnutls_deinit(tls->session);
    free(tls);
}

static ssize_t result(ssize_t code) {
    if (code >= 0) return code;
    errno = code == GNUTLS_E_AGAIN ? EAGAIN : code == GNUTLS_E_INTERRUPTED ? EINTR : ECONNRESET;
    return -1;
}

ssize_t load_tls_send(struct load_tls *tls, const void *bytes, size_t len) {
    return result(gnutls_record_send(tls->session, bytes, len));
}

ssize_t load_tls_recv(struct load_tls *tls, void *bytes, size_t len) {
    return result(gnutls_record_recv(tls->session, bytes, len));
}
