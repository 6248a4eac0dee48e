/* TLS for the connections of libmicrohttpd, by GnuTLS: which certificate is shown, and whose a
 * client shows. The only file here that knows GnuTLS. Read next: server.c, where a daemon starts.
 */
#ifndef BLASD_HTTP_TLS_H
#define BLASD_HTTP_TLS_H

#include "base/err.h"
#include "http/http.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_tls;

/* One a process, for libmicrohttpd asks for a certificate without saying on whose behalf. `files`
 * is borrowed. */
int http_tls_open(const struct blasd_tls_files *files, struct http_tls **ret,
                  struct blasd_err *err);
void http_tls_free(struct http_tls *tls); /* takes NULL */
/* Reads certificate and key anew, for the connections that come; where they cannot be read those
 * before stay. */
int http_tls_reread(struct http_tls *tls, struct blasd_err *err);

/* What MHD_start_daemon is to be told with MHD_OPTION_ARRAY, beside MHD_USE_TLS. */
#define HTTP_TLS_OPTIONS 4
void http_tls_options(const struct http_tls *tls, struct MHD_OptionItem options[HTTP_TLS_OPTIONS]);

/* Stands between a connection's session and its socket, so that what goes together is one system
 * call: the records of an answer's head and body, and a record's own head and body. Of a connection
 * that has just begun; NULL: no memory, or no TLS, and all goes as libmicrohttpd would have it.
 * *turns, which is borrowed, becomes HTTP_TLS_TURNS where something was read or sent: libmicrohttpd
 * does one step when it is run, and of the next ones no event tells. */
#define HTTP_TLS_TURNS 4
struct http_tls_line;
struct http_tls_line *http_tls_line_new(struct MHD_Connection *connection, int *turns);
void http_tls_line_free(struct http_tls_line *line); /* takes NULL, as the next */
/* A record comes that another one will follow at once: they are sent together. */
void http_tls_line_hold(struct http_tls_line *line);

#define HTTP_TLS_NAME 128
/* The common name of the certificate that the client has shown, where the client CA's has signed
 * it and it is in force; false: none. To be asked anew in *seconds, for connections are kept. */
bool http_tls_peer(struct MHD_Connection *connection, char name[HTTP_TLS_NAME], int64_t *seconds);
/* Writes on a connection of TLS beside libmicrohttpd, and says that no more comes; false: it is
 * not of TLS. */
bool http_tls_last_words(struct MHD_Connection *connection, const void *bytes, size_t len);

#endif
