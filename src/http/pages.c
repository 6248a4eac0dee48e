/* The pages for people: the API's description, made at build time, and what an error means. They
 * run no script and load nothing from elsewhere, which their policy (reply.c) says, too. */
#include "http/jobs.h"
#include "http/reply.h"

#include <pages.h>
#include <string.h>

void http_docs(struct http_exchange *exchange) {
    http_reply_page(exchange, 200, HTTP_TYPE_HTML, NULL, &HTTP_PAGE(docs_html));
}

void http_docs_style(struct http_exchange *exchange) {
    http_reply_page(exchange, 200, "text/css", NULL, &HTTP_PAGE(style_css));
}

/* The table's texts are our own, so only what HTML reads otherwise needs its other form. */
static int put_text(struct blasd_buf *out, const char *text) {
    for (; *text != '\0'; text++) {
        int rc = *text == '<'   ? blasd_buf_puts(out, "&lt;")
                 : *text == '>' ? blasd_buf_puts(out, "&gt;")
                 : *text == '&' ? blasd_buf_puts(out, "&amp;")
                                : blasd_buf_add(out, text, 1);
        if (rc != 0) return rc;
    }
    return 0;
}

static int write_error(const struct blasd_err_info *info, struct blasd_buf *out) {
    int rc = blasd_buf_printf(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<title>%s</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n</head>\n<body>\n"
        "<h1>%s</h1>\n<p>",
        info->name, info->name);
    if (rc == 0) rc = put_text(out, info->title);
    if (rc == 0)
        rc = blasd_buf_printf(out, ".</p>\n<p>Status %d; the same request %s later.</p>\n<p>",
                              info->http_status, info->retry ? "can succeed" : "will not succeed");
    if (rc == 0) rc = put_text(out, info->advice);
    if (rc == 0)
        rc =
            blasd_buf_puts(out, "</p>\n<p><a href=\"/docs#schema-Problem\">What a problem document "
                                "has</a></p>\n</body>\n</html>\n");
    return rc;
}

void http_error_page(struct http_exchange *exchange) {
    enum blasd_code code = blasd_err_code(exchange->captures[0]);
    const struct blasd_err_info *info = blasd_err_info(code);
    struct blasd_buf body;
    blasd_buf_init(&body, 64 * BLASD_KIB);
    if (strcmp(info->name, exchange->captures[0]) != 0)
        http_reply_fail(exchange, BLASD_E_route_not_found, "", "unknown error '%.63s'",
                        exchange->captures[0]);
    else if (write_error(info, &body) != 0)
        http_reply_no_memory(exchange);
    else
        http_reply(exchange, 200, HTTP_TYPE_HTML, NULL, http_buf(&body));
    blasd_buf_release(&body);
}
