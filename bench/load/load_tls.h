/* TLS for a connection of the load generator, by OpenSSL, as most clients have it. Any certificate
 * is taken. */
#ifndef BLASD_BENCH_LOAD_TLS_H
#define BLASD_BENCH_LOAD_TLS_H

#include <openssl/ssl.h>
#include <stddef.h>
#include <sys/types.h>

/* Shakes hands on a connected, not blocking descriptor, waiting; NULL: that failed. Freed by
 * SSL_free. */
SSL *load_tls_new(int fd);
/* As send and recv do, with errno. */
ssize_t load_tls_send(SSL *tls, const void *bytes, size_t len);
ssize_t load_tls_recv(SSL *tls, void *bytes, size_t len);

#endif
