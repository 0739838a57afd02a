// One machine code for each kind of processor, chosen when the module is loaded: by its instructions, not its maker.
#pragma once

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#if __GNUC__ >= 12
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#endif
#else
#define FOR_EACH_PROCESSOR
#endif

// Whether there is separate code for AVX2, to be called if the processor has it.
#if defined(__GNUC__) && defined(__x86_64__)
#define WITH_AVX2
inline bool has_avx2() {
    static const bool found = __builtin_cpu_supports("avx2");
    return found;
}
#else
inline bool has_avx2() { return false; }
#endif

// For functions called within such a function and compiled for the same processor.
#if defined(__GNUC__)
#define INLINED __attribute__((always_inline)) inline
#else
#define INLINED inline
#endif
