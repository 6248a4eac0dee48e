/* The routes of graphs, which are jobs of several steps: what differs. Read next: jobs_post.c. */
#include "http/jobs.h"

void http_graphs_post_begin(struct http_exchange *exchange) {
    exchange->form.graph = true;
    exchange->request.elsewhere = true; /* the steps are stored beside their data */
    http_jobs_post_begin(exchange);
}

void http_graphs_get(struct http_exchange *exchange) {
    exchange->form.graph = true;
    http_jobs_get(exchange);
}
