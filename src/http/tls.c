/* Certificates and sessions. */
#include "http/tls.h"

#include "base/clock.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#define CHAIN_MOST 16
#define PEER_KEPT_S 60 /* what was found out about a client */
/* A handshake may still hold what it was given; none lasts for so long. */
#define RETIRED_NS INT64_C(600000000000)
/* All that is normal, the fastest first where processors have instructions for it. */
#define PRIORITIES                                                                                 \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:"            \
    "+CHACHA20-POLY1305:+AES-128-CCM:+AES-256-CCM:+AES-128-CBC:+AES-256-CBC:%SERVER_PRECEDENCE"
#define HELD_BYTES 1024   /* the record of an answer's head */
#define PULLED_BYTES 2048 /* that of a small request; larger ones are read where they go */

/* A certificate with those that it is signed by, and its key. */
struct identity {
    gnutls_pcert_st chain[CHAIN_MOST];
    unsigned count;
    gnutls_privkey_t key;
    int64_t retired_ns;
    struct identity *older;
};

struct http_tls {
    const struct blasd_tls_files *files;
    gnutls_datum_t client_ca; /* owned; PEM, ended by a zero */
    pthread_mutex_t lock;
    struct identity *identity; /* owned; under the lock */
};

static struct http_tls *the_tls;

static void free_identity(struct identity *identity) {
    for (unsigned i = 0; i < identity->count; i++) gnutls_pcert_deinit(&identity->chain[i]);
    if (identity->key != NULL) gnutls_privkey_deinit(identity->key);
    free(identity);
}

static int fail(struct blasd_err *err, const char *what, const char *path, int code) {
    return blasd_fail(err, BLASD_E_internal_error, "", "the %s in %.150s: %s", what, path,
                      gnutls_strerror(code));
}

static int load_key(const char *path, gnutls_privkey_t *key, struct blasd_err *err) {
    gnutls_datum_t text = {NULL, 0};
    int code = gnutls_load_file(path, &text);
    if (code == 0) code = gnutls_privkey_init(key);
    if (code == 0) code = gnutls_privkey_import_x509_raw(*key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (text.data != NULL) {
        gnutls_memset(text.data, 0, text.size);
        gnutls_free(text.data);
    }
    return code == 0 ? 0 : fail(err, "key", path, code);
}

/* Whether the key is that of the certificate. */
static bool is_pair(const struct identity *identity) {
    unsigned char of_chain[64], of_key[64];
    size_t chain_len = sizeof of_chain, key_len = sizeof of_key;
    gnutls_pubkey_t public;
    bool same = false;
    if (gnutls_pubkey_init(&public) != 0) return false;
    if (gnutls_pubkey_import_privkey(public, identity->key, 0, 0) == 0 &&
        gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, of_key, &key_len) == 0 &&
        gnutls_pubkey_get_key_id(identity->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, of_chain,
                                 &chain_len) == 0)
        same = key_len == chain_len && memcmp(of_chain, of_key, key_len) == 0;
    gnutls_pubkey_deinit(public);
    return same;
}

static int load_identity(const struct blasd_tls_files *files, struct identity **ret,
                         struct blasd_err *err) {
    struct identity *identity = calloc(1, sizeof *identity);
    unsigned count = CHAIN_MOST;
    int code;
    if (identity == NULL) return blasd_no_memory(err);
    code = gnutls_pcert_list_import_x509_file(identity->chain, &count, files->cert,
                                              GNUTLS_X509_FMT_PEM, NULL, NULL, 0);
    if (code < 0) {
        free(identity);
        return fail(err, "certificate", files->cert, code);
    }
    identity->count = count;
    code = load_key(files->key, &identity->key, err);
    if (code == 0 && !is_pair(identity))
        code = blasd_fail(err, BLASD_E_internal_error, "",
                          "the key in %.100s is not that of the certificate in %.100s", files->key,
                          files->cert);
    if (code != 0)
        free_identity(identity);
    else
        *ret = identity;
    return code;
}

static void free_retired(struct identity **at, int64_t before_ns) {
    while (*at != NULL) {
        struct identity *identity = *at;
        if (identity->retired_ns > before_ns) {
            at = &identity->older;
            continue;
        }
        *at = identity->older;
        free_identity(identity);
    }
}

int http_tls_reread(struct http_tls *tls, struct blasd_err *err) {
    struct identity *identity = NULL;
    int code = load_identity(tls->files, &identity, err);
    if (identity == NULL) return code;
    pthread_mutex_lock(&tls->lock);
    if (tls->identity != NULL) tls->identity->retired_ns = blasd_clock_ns();
    free_retired(&tls->identity, blasd_clock_ns() - RETIRED_NS);
    identity->older = tls->identity;
    tls->identity = identity;
    pthread_mutex_unlock(&tls->lock);
    return 0;
}

/* Whether the file holds certificates, which libmicrohttpd would say without a reason. */
static int load_client_ca(struct http_tls *tls, struct blasd_err *err) {
    gnutls_x509_crt_t *list = NULL;
    unsigned count = 0;
    int code = gnutls_load_file(tls->files->client_ca, &tls->client_ca);
    if (code == 0)
        code = gnutls_x509_crt_list_import2(&list, &count, &tls->client_ca, GNUTLS_X509_FMT_PEM, 0);
    for (unsigned i = 0; list != NULL && i < count; i++) gnutls_x509_crt_deinit(list[i]);
    gnutls_free(list);
    return code >= 0 ? 0 : fail(err, "certificates", tls->files->client_ca, code);
}

int http_tls_open(const struct blasd_tls_files *files, struct http_tls **ret,
                  struct blasd_err *err) {
    struct http_tls *tls = calloc(1, sizeof *tls);
    int code = 0;
    if (tls == NULL) return blasd_no_memory(err);
    tls->files = files;
    pthread_mutex_init(&tls->lock, NULL);
    if (files->client_ca != NULL) code = load_client_ca(tls, err);
    if (code == 0) code = http_tls_reread(tls, err);
    if (code != 0) {
        http_tls_free(tls);
        return code;
    }
    *ret = the_tls = tls;
    return 0;
}

int blasd_http_check_tls(const struct blasd_tls_files *files, struct blasd_err *err) {
    struct http_tls *tls = NULL;
    int code = http_tls_open(files, &tls, err);
    http_tls_free(tls);
    return code;
}

void http_tls_free(struct http_tls *tls) {
    if (tls == NULL) return;
    if (the_tls == tls) the_tls = NULL;
    free_retired(&tls->identity, INT64_MAX);
    gnutls_free(tls->client_ca.data);
    pthread_mutex_destroy(&tls->lock);
    free(tls);
}

static int give_identity(gnutls_session_t session, const gnutls_datum_t *issuers, int issuer_count,
                         const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                         gnutls_pcert_st **chain, unsigned *count, gnutls_privkey_t *key) {
    (void)session, (void)issuers, (void)issuer_count, (void)algorithms, (void)algorithm_count;
    pthread_mutex_lock(&the_tls->lock);
    *chain = the_tls->identity->chain;
    *count = the_tls->identity->count;
    *key = the_tls->identity->key;
    pthread_mutex_unlock(&the_tls->lock);
    return 0;
}

void http_tls_options(const struct http_tls *tls, struct MHD_OptionItem options[HTTP_TLS_OPTIONS]) {
    static char priorities[] = PRIORITIES;
    gnutls_certificate_retrieve_function2 *give = give_identity;
    struct MHD_OptionItem *at = options;
    *at = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_CERT_CALLBACK};
    memcpy(&at++->ptr_value, &give, sizeof give);
    *at++ = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_PRIORITIES, .ptr_value = priorities};
    if (tls->client_ca.data != NULL)
        *at++ = (struct MHD_OptionItem){.option = MHD_OPTION_HTTPS_MEM_TRUST,
                                        .ptr_value = tls->client_ca.data};
    *at = (struct MHD_OptionItem){.option = MHD_OPTION_END};
}

static gnutls_session_t session_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        connection == NULL
            ? NULL
            : MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info == NULL ? NULL : info->tls_session;
}

/* *until: when it ends, if that is sooner. */
static bool read_certificate(const gnutls_datum_t *bytes, char name[HTTP_TLS_NAME], time_t *until) {
    gnutls_x509_crt_t certificate;
    size_t size = HTTP_TLS_NAME;
    bool found = false;
    if (gnutls_x509_crt_init(&certificate) != 0) return false;
    if (gnutls_x509_crt_import(certificate, bytes, GNUTLS_X509_FMT_DER) == 0) {
        time_t end = gnutls_x509_crt_get_expiration_time(certificate);
        if (end != (time_t)-1 && end < *until) *until = end;
        found = gnutls_x509_crt_get_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name,
                                              &size) == 0;
    }
    gnutls_x509_crt_deinit(certificate);
    /* a zero byte within would end it early for us and not for whoever signed it */
    return found && strlen(name) == size && size > 0;
}

bool http_tls_peer(struct MHD_Connection *connection, char name[HTTP_TLS_NAME], int64_t *seconds) {
    gnutls_session_t session = session_of(connection);
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    const gnutls_datum_t *chain;
    const time_t now = time(NULL);
    time_t until = now + PEER_KEPT_S; /* then those that have signed it are looked at, too */
    unsigned count = 0, status = 0;
    *seconds = PEER_KEPT_S;
    if (session == NULL) return false;
    chain = gnutls_certificate_get_peers(session, &count);
    if (chain == NULL || count == 0) return false;
    if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) != 0 || status != 0)
        return false;
    if (!read_certificate(&chain[0], name, &until)) return false;
    *seconds = until > now ? until - now : 0;
    return true;
}

/* --- between session and socket --- */

struct http_tls_line {
    gnutls_session_t session; /* borrowed: as long as the connection */
    int fd;
    int *turns;        /* borrowed */
    bool hold;         /* the next record waits for the one behind it */
    size_t held;       /* bytes of one that waits */
    size_t at, pulled; /* what was read ahead, and how much of it is taken */
    char records[HELD_BYTES], ahead[PULLED_BYTES];
};

static ssize_t fail_line(const struct http_tls_line *line, int why) {
    gnutls_transport_set_errno(line->session, why);
    return -1;
}

/* What is held counts as sent, so that nobody else would send it: until it is, nothing else is. */
static ssize_t push(gnutls_transport_ptr_t ptr, const void *bytes, size_t len) {
    struct http_tls_line *line = ptr;
    const bool hold = line->hold && line->held + len <= sizeof line->records;
    struct iovec parts[] = {{line->records, line->held}, {(void *)(uintptr_t)bytes, len}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;
    line->hold = false;
    if (hold) {
        memcpy(line->records + line->held, bytes, len);
        line->held += len;
        return (ssize_t)len;
    }
    sent = sendmsg(line->fd, &message, MSG_NOSIGNAL);
    if (sent < 0) return fail_line(line, errno);
    *line->turns = HTTP_TLS_TURNS;
    if ((size_t)sent <= line->held) {
        line->held -= (size_t)sent;
        memmove(line->records, line->records + sent, line->held);
        return fail_line(line, EAGAIN);
    }
    sent -= (ssize_t)line->held;
    line->held = 0;
    return sent;
}

static ssize_t pull(gnutls_transport_ptr_t ptr, void *bytes, size_t len) {
    struct http_tls_line *line = ptr;
    const bool empty = line->at == line->pulled, small = len < sizeof line->ahead;
    ssize_t got = 1;
    if (empty)
        got = recv(line->fd, small ? line->ahead : bytes, small ? sizeof line->ahead : len, 0);
    if (got < 0) return fail_line(line, errno);
    *line->turns = HTTP_TLS_TURNS;
    if (got == 0 || (empty && !small)) return got;
    if (empty) {
        line->at = 0;
        line->pulled = (size_t)got;
    }
    if (len > line->pulled - line->at) len = line->pulled - line->at;
    memcpy(bytes, line->ahead + line->at, len);
    line->at += len;
    return (ssize_t)len;
}

/* GnuTLS wants to know whether there is something before it asks for it. */
static int pull_timeout(gnutls_transport_ptr_t ptr, unsigned ms) {
    const struct http_tls_line *line = ptr;
    struct pollfd ready = {.fd = line->fd, .events = POLLIN};
    if (line->at < line->pulled) return 1;
    return poll(&ready, 1, ms > INT_MAX ? -1 : (int)ms);
}

struct http_tls_line *http_tls_line_new(struct MHD_Connection *connection, int *turns) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    /* libmicrohttpd 1.0 has one place for all that it is asked for: no later than here */
    const int fd = info == NULL ? -1 : info->connect_fd;
    gnutls_session_t session = session_of(connection);
    struct http_tls_line *line =
        session == NULL || fd < 0 ? NULL : malloc(sizeof *line); /* large: not zeroed */
    if (line == NULL) return NULL;
    line->session = session;
    line->fd = fd;
    line->turns = turns;
    line->hold = false;
    line->held = line->at = line->pulled = 0;
    gnutls_transport_set_ptr(session, line);
    gnutls_transport_set_push_function(session, push);
    gnutls_transport_set_pull_function(session, pull);
    gnutls_transport_set_pull_timeout_function(session, pull_timeout);
    return line;
}

void http_tls_line_free(struct http_tls_line *line) {
    free(line);
}

void http_tls_line_hold(struct http_tls_line *line) {
    if (line != NULL) line->hold = true;
}

bool http_tls_last_words(struct MHD_Connection *connection, const void *bytes, size_t len) {
    gnutls_session_t session = session_of(connection);
    if (session == NULL) return false;
    if (gnutls_record_send(session, bytes, len) == (ssize_t)len)
        (void)gnutls_bye(session, GNUTLS_SHUT_WR);
    return true;
}
