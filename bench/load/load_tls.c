/* One session a connection. */
#include "load_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>

#define TIMEOUT_MS 10000

static SSL_CTX *shared_context(void) {
    static SSL_CTX *context;
    if (context == NULL && (context = SSL_CTX_new(TLS_client_method())) != NULL) {
        SSL_CTX_set_read_ahead(context, 1); /* one receive for an answer */
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE);
    }
    return context;
}

static int shake_hands(SSL *tls, int fd) {
    for (;;) {
        int code = SSL_connect(tls), why = SSL_get_error(tls, code);
        struct pollfd wait = {.fd = fd, .events = why == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN};
        if (code == 1) return 0;
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return -1;
        if (poll(&wait, 1, TIMEOUT_MS) <= 0) return -1;
    }
}

SSL *load_tls_new(int fd) {
    struct pollfd connected = {.fd = fd, .events = POLLOUT};
    SSL *tls = shared_context() == NULL ? NULL : SSL_new(shared_context());
    if (tls != NULL && poll(&connected, 1, TIMEOUT_MS) > 0 && SSL_set_fd(tls, fd) == 1 &&
        shake_hands(tls, fd) == 0)
        return tls;
    SSL_free(tls);
    return NULL;
}

static ssize_t result(SSL *tls, int code) {
    int why;
    if (code > 0) return code;
    why = SSL_get_error(tls, code);
    if (why == SSL_ERROR_ZERO_RETURN) return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    ERR_clear_error();
    return -1;
}

ssize_t load_tls_send(SSL *tls, const void *bytes, size_t len) {
    return result(tls, SSL_write(tls, bytes, (int)len));
}

ssize_t load_tls_recv(SSL *tls, void *bytes, size_t len) {
    return result(tls, SSL_read(tls, bytes, (int)len));
}
