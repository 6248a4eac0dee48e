/* By OpenSSL, as hiredis does it; by itself hiredis would not look at whose the certificate is. */
#include "redis/redis_tls.h"

#ifndef BLASD_REDIS_TLS

bool blasd_redis_tls_known(void) {
    return false;
}

int blasd_redis_tls_start(redisContext *redis, const char *host, struct blasd_err *err) {
    (void)redis, (void)host;
    return blasd_fail(err, BLASD_E_internal_error, "", "this build has no TLS for Redis");
}

#else

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>

static SSL_CTX *context; /* made once; NULL: it could not be */

static void make_context(void) {
    const char *authorities = getenv("BLASD_REDIS_CA");
    SSL_CTX *made = SSL_CTX_new(TLS_client_method());
    bool good = made != NULL && SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION) == 1;
    if (good && authorities != NULL && authorities[0] != '\0')
        good = SSL_CTX_load_verify_locations(made, authorities, NULL) == 1;
    else if (good)
        good = SSL_CTX_set_default_verify_paths(made) == 1;
    if (!good) {
        SSL_CTX_free(made);
        return;
    }
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, NULL);
    context = made;
}

/* Name or address, whichever the host is. */
static bool expect_host(SSL *ssl, const char *host) {
    unsigned char bytes[16];
    if (inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

bool blasd_redis_tls_known(void) {
    return true;
}

int blasd_redis_tls_start(redisContext *redis, const char *host, struct blasd_err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    SSL *ssl;
    pthread_once(&once, make_context);
    if (context == NULL)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "the authorities that sign the certificate of Redis cannot be read; see "
                          "BLASD_REDIS_CA");
    ERR_clear_error();
    ssl = SSL_new(context);
    if (ssl == NULL || !expect_host(ssl, host)) {
        SSL_free(ssl);
        return blasd_fail(err, BLASD_E_internal_error, "", "TLS to Redis cannot be set up");
    }
    if (redisInitiateSSL(redis, ssl) == REDIS_OK) return 0; /* which has taken it */
    SSL_free(ssl);                                          /* and now has not */
    return blasd_fail(err, BLASD_E_queue_unavailable, "", "no TLS with Redis at %.100s: %.100s",
                      host, redis->errstr);
}

#endif
