/* What follows, up to target_end.h, is compiled for AVX2 and FMA. See target_avx512.h. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
