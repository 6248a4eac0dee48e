/* What is done once in a while, beside requests: each loop looks at its exchanges, the first one at
 * the store, the keys, the queue and the other loops. Read next: server.c. */
#ifndef BLASD_HTTP_UPKEEP_H
#define BLASD_HTTP_UPKEEP_H

struct http_loop;
struct http_server;

/* Before the loops are made: looks at the store, and has changes of keys logged. */
void http_upkeep_open(struct http_server *server);
/* The first tick of a loop, which sets the next. */
void http_upkeep_start(struct http_loop *loop);
/* Tells on_serving, once jobs would run. */
void http_upkeep_serving(struct http_server *server);
/* Reads keys and certificates again, where they have changed. */
void http_upkeep_reread(struct http_server *server);

#endif
