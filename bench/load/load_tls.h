/* TLS for a connection of the load generator, by GnuTLS. Any certificate is taken. */
#ifndef BLASD_BENCH_LOAD_TLS_H
#define BLASD_BENCH_LOAD_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct load_tls;

/* Shakes hands on a connected, not blocking descriptor, waiting; NULL: that failed. */
struct load_tls *load_tls_new(int fd);
void load_tls_free(struct load_tls *tls); /* takes NULL */
/* As send and recv do, with errno. */
ssize_t load_tls_send(struct load_tls *tls, const void *bytes, size_t len);
ssize_t load_tls_recv(struct load_tls *tls, void *bytes, size_t len);

#endif
