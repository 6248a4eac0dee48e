/* The page at `/`, one document made of the files in console/ when this is built. Nobody's secrets
 * stand in it, and a browser shows no key for a page, so whoever has none gets it, too: with status
 * 401, of which browsers show the body. What the page then asks for goes with the key that its user
 * gives it. Read next: console/app.js. */
#include "http/jobs.h"
#include "http/reply.h"

#include <console.h>

void http_console_page(struct http_exchange *exchange) {
    static const struct http_header headers[] = {
        {"WWW-Authenticate", HTTP_CHALLENGE},  {"Content-Security-Policy", CONSOLE_POLICY},
        {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-cache"},         {NULL, NULL}};
    bool welcome = exchange->answer.problem.code == BLASD_OK;
    http_reply_page(exchange, welcome ? 200 : 401, HTTP_TYPE_HTML, headers + (welcome ? 1 : 0),
                    &HTTP_PAGE(console_html));
}
