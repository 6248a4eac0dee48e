/* Makes the tables of a descriptor, `inputs`, `outputs` and `params`, from BLASD_DECLARED, as
 * op_enums.h makes the positions in them. Included by op_NAME.c alone. Read next: op.h. */
#include "core/op.h"

#define BLASD_INPUT(position, ...) [position] = {__VA_ARGS__},
#define BLASD_OUTPUT(position, ...)
#define BLASD_PARAM(position, ...)
static const struct blasd_port inputs[] = {
#include BLASD_DECLARED
    {.name = NULL}};
#undef BLASD_INPUT
#undef BLASD_OUTPUT
#define BLASD_INPUT(position, ...)
#define BLASD_OUTPUT(position, ...) [position] = {__VA_ARGS__},
static const struct blasd_port outputs[] = {
#include BLASD_DECLARED
    {.name = NULL}};
#undef BLASD_OUTPUT
#undef BLASD_PARAM
#define BLASD_OUTPUT(position, ...)
#define BLASD_PARAM(position, ...) [position] = {__VA_ARGS__},
static const struct blasd_param params[] = {
#include BLASD_DECLARED
    {.name = NULL}};
#undef BLASD_INPUT
#undef BLASD_OUTPUT
#undef BLASD_PARAM
#undef BLASD_DECLARED
