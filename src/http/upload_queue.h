/* The id of an upload's job, and whether the queue has room for it. Private to jobs_post.c and
 * jobs_submit.c. */
#ifndef BLASD_HTTP_UPLOAD_QUEUE_H
#define BLASD_HTTP_UPLOAD_QUEUE_H

#include "http/upload.h"

/* Makes a new id for the job. */
void http_upload_id(struct http_upload *upload);
/* Whether the queue has room for the job, as far as it is known: of the body its length alone.
 * Errors that the queue would answer with: draining, queue_full, results_full, body_too_large, and
 * why it is away. */
int http_upload_find_room(const struct http_upload *upload, struct blasd_err *err);

#endif
