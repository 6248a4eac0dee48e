/* Inputs that lie at URLs: fetched, one after the other, to where the body's own tensors lie,
 * before the job is made. What becomes of the request meanwhile is as if its body still came. Read
 * next: ../outgoing/fetch.h, ../wire/remote_in.h. */
#ifndef BLASD_HTTP_REMOTE_INPUTS_H
#define BLASD_HTTP_REMOTE_INPUTS_H

#include "http/body_sink.h"

struct http_remote_inputs;

/* Ends the intake's body; where inputs lie at URLs they are fetched, and then `done` is called with
 * the exchange, which is held till then. 1: so it is, and *ret, new, is to be freed after that; 0:
 * there are none; or a negative code. */
int http_remote_inputs_gather(struct http_exchange *exchange, struct blasd_intake *intake,
                              struct http_body_sink *sink,
                              void (*done)(void *arg, const struct blasd_err *err),
                              struct http_remote_inputs **ret, struct blasd_err *err);
/* They are not wanted any more; `done` is called all the same. Takes NULL. */
void http_remote_inputs_cancel(struct http_remote_inputs *inputs);
void http_remote_inputs_free(struct http_remote_inputs *inputs); /* takes NULL */

/* Has the loop told of fetches that have ended. */
int http_remote_inputs_open(struct http_loop *loop);
void http_remote_inputs_close(struct http_loop *loop);

#endif
