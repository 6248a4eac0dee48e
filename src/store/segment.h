/* Segments: files of a store of kind dir that hold many payloads of middling size side by side.
 *
 * A payload of some kilobytes is too much for Redis, whose functions hash every byte, and too
 * little for a file of its own, which costs some 36 system calls. So each thread that has payloads
 * to pass on owns segments: it maps them once and writes payloads (slices) one after the other.
 * Everybody else maps a segment when it first meets its name, and reads slices where they lie.
 *
 * Redis counts the references to a segment (pending jobs whose inputs, and record buckets whose
 * outputs, lie in it; see functions/contract.lua). Once a full segment has none, its owner uses it
 * again: pages stay faulted in, names stay mapped. Nothing else frees a slice, so an owner's death
 * frees none: its segments are then nobody's, and the store's sweep removes them when their count
 * is 0.
 *
 * A segment begins with its generation, which its owner raises before the first byte of a new use.
 * Who copies a slice checks the generation afterwards: only then are the bytes what was meant.
 * Knows nothing of jobs or of Redis. Read next: segment_writer.c, segment_view.c. */
#ifndef BLASD_SEGMENT_H
#define BLASD_SEGMENT_H

#include "core/slice.h"
#include "store/store.h"

#define BLASD_SEGMENT_BYTES (UINT64_C(4) << 20)
#define BLASD_SLICE_LEAST UINT64_C(1024)            /* less than this goes beside the frame */
#define BLASD_SLICE_MOST (BLASD_SEGMENT_BYTES / 16) /* more than this is a blob */

/* What jobs of different life times would otherwise hold each other's memory. */
enum blasd_segment_kind { BLASD_SEGMENT_SYNC, BLASD_SEGMENT_ASYNC };
#define BLASD_SEGMENT_KINDS 2
enum blasd_segment_kind blasd_segment_kind_of(const char *id); /* of a job's id */

/* The first bytes of a segment. */
struct blasd_segment_head {
    _Atomic uint32_t generation;
};

/* The segments of one owner, which is one thread. */
struct blasd_segments;

/* New; free with blasd_segments_free, which leaves the files to the sweep. NULL: out of memory.
 * `store` is borrowed. */
struct blasd_segments *blasd_segments_new(struct blasd_store *store);
void blasd_segments_free(struct blasd_segments *segments); /* takes NULL */
/* Whether payloads of that many bytes travel as slices in this store. */
bool blasd_segments_wanted(const struct blasd_segments *segments, uint64_t bytes);
/* Room for `bytes`: NULL where there is none (the payload then travels another way). The segment is
 * pinned until blasd_segments_unpin. */
void *blasd_segments_take(struct blasd_segments *segments, enum blasd_segment_kind kind,
                          uint64_t bytes, struct blasd_slice *slice);
/* `sure`: Redis has counted the reference, or never will. Where that is not known the segment is
 * never used again. */
void blasd_segments_unpin(struct blasd_segments *segments, const struct blasd_slice *slice,
                          bool sure);
/* Names of full segments that nobody here pins, oldest first, for which it is worth asking Redis
 * whether they are free: as blobs, "NAME.seg". Returns how many: none while enough are free, and
 * none until another one has been filled, unless `all` are asked for. */
int blasd_segments_doubtful(struct blasd_segments *segments, char (*names)[BLASD_BLOB_NAME],
                            int most, bool all);
/* Redis refers to this one no more. */
void blasd_segments_reuse(struct blasd_segments *segments, const char *name);
/* Gives back what has been free for some seconds. */
void blasd_segments_trim(struct blasd_segments *segments);

/* Other owners' segments, mapped for reading by one thread. */
struct blasd_views;
struct blasd_view;

struct blasd_views *blasd_views_new(struct blasd_store *store); /* borrowed; NULL: out of memory */
void blasd_views_free(struct blasd_views *views);               /* takes NULL */
/* The bytes of a slice where they lie; *hold keeps them mapped until blasd_views_let_go. NULL where
 * they are not there any more. */
const void *blasd_views_get(struct blasd_views *views, const struct blasd_slice *slice,
                            uint64_t bytes, struct blasd_view **hold);
/* Whether what was read until now is what the slice meant. */
bool blasd_views_valid(const struct blasd_view *hold, const struct blasd_slice *slice);
void blasd_views_let_go(struct blasd_view *hold);
/* Unmaps what nobody has looked at for some seconds and is no file any more, or for a minute. */
void blasd_views_trim(struct blasd_views *views);

#endif
