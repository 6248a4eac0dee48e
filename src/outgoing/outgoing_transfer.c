/* How a request to somebody on the list is made. */
#include "outgoing/hosts.h"

#include <string.h>
#include <sys/socket.h>

#define CONNECT_MS 5000L
#define STALLED_S 10L /* without a byte */

/* What it is asked about is what would be connected to. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address) {
    struct blasd_outgoing_transfer *transfer = arg;
    bool may =
        purpose == CURLSOCKTYPE_IPCXN && outgoing_may_connect(transfer->host, &address->addr);
    transfer->allowed |= may;
    transfer->refused = !transfer->allowed;
    if (!may) return CURL_SOCKET_BAD;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

int blasd_outgoing_transfer(const struct blasd_outgoing *outgoing, const char *url,
                            const char *field, CURL *curl, struct blasd_outgoing_transfer *transfer,
                            struct blasd_err *err) {
    char plain[BLASD_OUTGOING_URL];
    CURLcode bad = CURLE_OK;
    int code;
    *transfer = (struct blasd_outgoing_transfer){.host = NULL};
    code = outgoing_find(outgoing, url, strlen(url), field, plain, &transfer->host, err);
    if (code != 0) return code;
#define SET(option, value) bad = bad != CURLE_OK ? bad : curl_easy_setopt(curl, option, value)
    SET(CURLOPT_URL, plain);
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, transfer->host->http ? "http" : "https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(transfer->host->http ? CURLPROTO_HTTP : CURLPROTO_HTTPS));
#endif
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, transfer);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, ""); /* not the environment's either */
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (outgoing->ca != NULL) SET(CURLOPT_CAINFO, outgoing->ca);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_USERAGENT, "blasd");
    SET(CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
    SET(CURLOPT_QUICK_EXIT, 1L); /* a name server that hangs holds up this request alone */
#endif
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, STALLED_S);
#undef SET
    if (bad == CURLE_OK) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, field, "a request cannot be prepared: %s",
                      curl_easy_strerror(bad));
}

const char *blasd_outgoing_why(const struct blasd_outgoing_transfer *transfer, CURLcode code) {
    if (code == CURLE_COULDNT_CONNECT && transfer->refused)
        return "its address is not one that the service may go to";
    return curl_easy_strerror(code);
}
