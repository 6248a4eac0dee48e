/* Requests that the service makes to others on a client's word: whom the operator lets clients
 * name, and how such a request is made.
 *
 * A URL is looked at twice. blasd_outgoing_check, where a client names it, goes by its text alone:
 * scheme, host and port have to be listed. blasd_outgoing_transfer, where the request is made,
 * looks again, and then at each address that a connection is about to be made to, whatever name led
 * there: one of this machine, of a private network or of a cloud's inside is refused unless the
 * operator listed it as such. So a name that points elsewhere meanwhile gains nothing. No redirect
 * is followed, no proxy asked, no other protocol spoken. Read next: hosts.h (the list). */
#ifndef BLASD_OUTGOING_OUTGOING_H
#define BLASD_OUTGOING_OUTGOING_H

#include "base/err.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#define BLASD_OUTGOING_URL 2048 /* bytes of a URL with its zero */

struct blasd_outgoing;
struct outgoing_host;

/* Reads the list: [http://|https://]HOST[:PORT][+private], with commas or spaces between. HOST is a
 * name, *.NAME for all below it, or an address; without a scheme it is https, without a port the
 * scheme's own. +private: it may lie in a private network or on this machine; an address that is
 * listed is meant as it is. `ca`: a file of certificates to trust beside the system's, or NULL.
 * New: free with blasd_outgoing_free. invalid_field, in the words of an option. */
int blasd_outgoing_new(const char *hosts, const char *ca, struct blasd_outgoing **ret,
                       struct blasd_err *err);
void blasd_outgoing_free(struct blasd_outgoing *outgoing);

/* Whether a client may name this URL; `outgoing` NULL: none. No name is resolved. `field` is
 * blamed. Fills in the URL with its scheme, host and port in lower case and none of them left out,
 * and no fragment. invalid_field, url_not_allowed. */
int blasd_outgoing_check(const struct blasd_outgoing *outgoing, const char *url, size_t len,
                         const char *field, char plain[BLASD_OUTGOING_URL], struct blasd_err *err);

/* One request; stays where it is until that has ended. */
struct blasd_outgoing_transfer {
    const struct outgoing_host *host; /* borrowed from the list */
    bool allowed;                     /* an address may be connected to */
    bool refused;                     /* none may that there was so far */
};

/* Checks the URL, and prepares a new handle, or one after curl_easy_reset, for it. The caller adds
 * what it sends and receives, and how long all of it may take; it sets none of the options that
 * say where to. */
int blasd_outgoing_transfer(const struct blasd_outgoing *outgoing, const char *url,
                            const char *field, CURL *curl, struct blasd_outgoing_transfer *transfer,
                            struct blasd_err *err);
/* Why a transfer failed, as text that a client may see. */
const char *blasd_outgoing_why(const struct blasd_outgoing_transfer *transfer, CURLcode code);

#endif
