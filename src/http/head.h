/* Whether the head of a request means to us what it means to everybody who reads it on its way.
 *
 * libmicrohttpd 0.9 takes lines that end in a bare LF, joins a line that is folded to the *name* of
 * the header before it (`Host: a` and ` .b` become a header `Host.b`), and takes any name there is.
 * It cuts the head into texts where that lies, and ends each with zero bytes in place of what stood
 * behind it: a text that was moved, or has one zero where CR LF would leave two, was not what it
 * seems. From 0.9.77 on the library looks at its lines itself, if it is told to (server.c).
 * Pure. Read next: request.h, for what the headers say. */
#ifndef BLASD_HTTP_HEAD_H
#define BLASD_HTTP_HEAD_H

#include "base/err.h"

#include <stddef.h>

/* What was seen so far. `bare_lines`: lines may end in a bare LF, or be folded, and nobody has
 * looked. */
struct http_head {
    bool bare_lines;
    const char *end; /* the last line's text ends before this */
};

/* Whether the target of a request, where the library hands it out first, goes on to the version: a
 * zero byte that the client sent would end it for us alone. Where lines were looked at: true. */
bool http_head_target(const struct http_head *head, const char *target);

/* A target may be a whole URL, as a client sends it to a proxy and may send it to anyone
 * (absolute-form). Its path, "/" where it has none; *authority: what stands before it, up to the
 * path, or NULL where the target is a path. Borrowed from `target`. */
const char *http_head_path(const char *target, const char **authority);
/* Whether an authority that ends where the path begins is what the Host header says; else two
 * readers of this request may disagree on whom it is for. */
bool http_head_is_host(const char *authority, const char *host);

/* The three are called for each line of a head in their order, and return 0 or malformed_query.
 * The first line, whose version is its last text: */
int http_head_start(struct http_head *head, const char *version, struct blasd_err *err);
/* A header, both texts where they lie. */
int http_head_header(struct http_head *head, const char *name, size_t name_len, const char *value,
                     size_t len, struct blasd_err *err);
/* The end: `behind` is the first byte after the head; NULL: not known. */
int http_head_finish(const struct http_head *head, const char *behind, struct blasd_err *err);

#endif
