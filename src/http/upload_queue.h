/* Which queue the job of an upload goes to, as more of it becomes known, and whether there is room.
 * Its id says which: where it goes to another after all, it gets another id. Private to
 * jobs_post.c. */
#ifndef BLASD_HTTP_UPLOAD_QUEUE_H
#define BLASD_HTTP_UPLOAD_QUEUE_H

#include "http/upload.h"

/* Makes the id, before the body is read. */
void http_upload_choose(struct http_upload *upload);
/* The body has been read: a job that refers to others goes where what it names first lies, one that
 * keeps outputs alone where its tenant's tensors lie. */
int http_upload_follow(struct http_upload *upload, const struct blasd_job *job,
                       struct blasd_err *err);
/* Whether its queue has room for it; else it goes to another that has, where it may. What the queue
 * would say anyway: draining, queue_full, results_full, body_too_large, and why it is away. */
int http_upload_find_room(struct http_upload *upload, struct blasd_err *err);

#endif
