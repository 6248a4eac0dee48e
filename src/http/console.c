/* The page at `/`: its files are console/, made into bytes when this is built. They say nothing of
 * anybody's, so they need no key: a browser shows none for a page. What the page then asks for
 * does. Read next: console/app.js. */
#include "http/jobs.h"
#include "http/reply.h"

#include <console.h>
#include <string.h>

/* It runs what is served here, asks nobody else, and is nobody's frame. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "        \
    "'self'; "                                                                                     \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

static void show(struct http_exchange *exchange, const char *name) {
    static const char *const headers[][2] = {{"Content-Security-Policy", POLICY},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cache-Control", "no-cache"},
                                             {NULL, NULL}};
    for (size_t i = 0; i < sizeof console_files / sizeof *console_files; i++)
        if (strcmp(console_files[i].name, name) == 0) {
            http_reply_file(exchange, console_files[i].type, headers, console_files[i].bytes,
                            console_files[i].len);
            return;
        }
    http_reply_fail(exchange, BLASD_E_route_not_found, "", "the page has no file '%.63s'", name);
}

void http_console_page(struct http_exchange *exchange) {
    show(exchange, "index.html");
}

void http_console_file(struct http_exchange *exchange) {
    show(exchange, exchange->captures[0]);
}
