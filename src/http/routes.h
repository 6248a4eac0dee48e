/* The table of routes. */
#ifndef BLASD_HTTP_ROUTES_H
#define BLASD_HTTP_ROUTES_H

#include "http/exchange.h"

/* Finds the row for a path and method, fills captures and allow. Sets nothing else. */
const struct http_route *http_route_find(const char *path, enum http_method method,
                                         char captures[HTTP_CAPTURES][64], unsigned *allow);
/* Of a path that was served once: what to use, a fixed text; NULL: it never was. */
const char *http_route_gone(const char *path);
/* How answers of that path are written; NULL: our own way. */
const struct http_dialect *http_dialect_find(const char *path);
extern const struct http_route http_routes[]; /* ended by a row whose path is NULL */

#endif
