/* Who may call from where: keeps web pages of other origins away from a service on loopback.
 *
 * A page elsewhere can make a browser send requests to 127.0.0.1, directly (then Origin names the
 * page) or through a name of its own that it points there (then Host names the page). Addresses
 * cannot be forged that way, so any address is a good Host. What it has shown as an image or in a
 * frame comes without Origin; then Sec-Fetch-Site tells, which browsers send to loopback and over
 * TLS. Somebody who follows a link here is let in: the page that had it learns nothing.
 * Pure. Read next: exchange.h. */
#ifndef BLASD_HTTP_ORIGIN_CHECK_H
#define BLASD_HTTP_ORIGIN_CHECK_H

#include "http/request.h"

struct http_origins {
    const char *const *hosts;   /* borrowed, ended by NULL; may be NULL */
    const char *const *origins; /* borrowed, ended by NULL; may be NULL */
    char own_name[256];         /* this machine's */
};

void http_origins_init(struct http_origins *allowed, const char *const *hosts,
                       const char *const *origins);
/* Checks what the headers say of who asks. *foreign: the origin is another one that is allowed, so
 * the answer must tell the browser so. forbidden_host, forbidden_origin. */
int http_origin_check(const struct http_origins *allowed, const struct http_request *request,
                      bool *foreign, struct blasd_err *err);

#endif
