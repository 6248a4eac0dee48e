/* How the files of the stand-in library put work on its streams. Nobody else may include this. */
#ifndef BLASD_TESTS_STANDIN_STREAM_H
#define BLASD_TESTS_STANDIN_STREAM_H

#include <functional>

struct blasd_err;
struct blasd_gpu_stream;

/* Counts a call that can fail, and fails it where a test asked for that. */
int blasd_standin_fault(struct blasd_err *err);
/* `run` happens when the stream comes to it; device memory can be touched then. */
void blasd_standin_put(struct blasd_gpu_stream *stream, std::function<void()> run);

#endif
