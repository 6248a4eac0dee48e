/* The tests of test_numbers.cc with the printer that other processors than x86-64 get. */
#define BLASD_NUMBER_PLAIN
#include "src/wire/number_write.cc"

#include "tests/unit/wire/test_numbers.cc"
