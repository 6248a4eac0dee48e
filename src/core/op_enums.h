/* Makes the positions of an operation's inputs, outputs and parameters, which are those of its
 * tables (op_tables.h), from its declaration: BLASD_DECLARED, a file of
 * BLASD_INPUT(position, members of struct blasd_port), BLASD_OUTPUT and BLASD_PARAM. Included by
 * the operation's header, and no guard: once for each operation. Read next: op.h. */
#define BLASD_INPUT(position, ...) position,
#define BLASD_OUTPUT(position, ...)
#define BLASD_PARAM(position, ...)
enum {
#include BLASD_DECLARED
};
#undef BLASD_INPUT
#undef BLASD_OUTPUT
#define BLASD_INPUT(position, ...)
#define BLASD_OUTPUT(position, ...) position,
enum {
#include BLASD_DECLARED
};
#undef BLASD_OUTPUT
#undef BLASD_PARAM
#define BLASD_OUTPUT(position, ...)
#define BLASD_PARAM(position, ...) position,
enum {
#include BLASD_DECLARED
};
#undef BLASD_INPUT
#undef BLASD_OUTPUT
#undef BLASD_PARAM
#undef BLASD_DECLARED
