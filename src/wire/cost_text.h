/* Costs as JSON: in a worker's info, which GET /devices shows, and in the file that keeps them.
 *
 *     {"launch_us":2,"gflops_float64":40,"gflops_float32":80,"copy_gbytes_s":5,"upload_gbytes_s":0,
 *      "download_gbytes_s":0,"curves":{"matmul":{"float64":[[1020,1.3,0.2],…],…},…}}
 *
 * A point is [operations of one problem, microseconds of one alone, microseconds of each further
 * one]. Curves without a point are left out; members that are not known are passed over, operations
 * that this build lacks too. Read next: cost_text.c. */
#ifndef BLASD_WIRE_COST_TEXT_H
#define BLASD_WIRE_COST_TEXT_H

#include "core/cost.h"

struct blasd_err;
struct json_t;

#define BLASD_COST_TEXT_MOST 65536 /* bytes of such a text */

/* New: the object; NULL where memory has run out. */
struct json_t *blasd_cost_json(const struct blasd_cost *cost);
/* Its text, to be freed by the caller; NULL where memory has run out. */
char *blasd_cost_write(const struct blasd_cost *cost);
/* Reads an object; false where it is none, or a figure in it cannot be a time: *ret is zeroed. */
bool blasd_cost_read_object(const struct json_t *object, struct blasd_cost *ret);
/* The same from its text: malformed_json where it is none, or a figure in it cannot be a time: then
 * *ret is zeroed. */
int blasd_cost_read(const char *text, size_t len, struct blasd_cost *ret, struct blasd_err *err);

#endif
