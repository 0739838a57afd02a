// Machine code for several kinds of processors. The module chooses at run time, by the processor's instructions, not its maker.
#pragma once

// Inlined into its caller, and compiled for the same processor.
#define INLINED __attribute__((always_inline)) inline
#define INLINED_BODY __attribute__((always_inline))  // of a lambda

#if defined(__x86_64__)
#include <cpuid.h>
#define WITH_AVX2
#define FOR_AVX2 __attribute__((target("avx2")))
#define FOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#endif

namespace keyblock {

enum class Processor { PLAIN, AVX2, AVX512 };

#if defined(WITH_AVX2)

// The best instructions that both this processor and the system support. Read from the processor itself: not every compiler's
// __builtin_cpu_supports works (zig's does not).
inline Processor detected() {
    constexpr unsigned WIDE = 0x6, WIDEST = 0xe6;  // bits of the registers that the system saves, as XGETBV reports them
    constexpr unsigned AVX512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_OSXSAVE) == 0 || (c & bit_AVX) == 0) return Processor::PLAIN;
    unsigned saved, high;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (saved & WIDE) != WIDE || (b & bit_AVX2) == 0) return Processor::PLAIN;
    return (saved & WIDEST) == WIDEST && (b & AVX512) == AVX512 ? Processor::AVX512 : Processor::AVX2;
}

inline Processor processor() {
    static const Processor found = detected();
    return found;
}

template <typename Work>
FOR_AVX2 auto with_avx2(Work work) {
    return work();
}

template <typename Work>
FOR_AVX512 auto with_avx512(Work work) {
    return work();
}

// Runs `work` in code for this processor. `work` must be a lambda that captures by value and has INLINED_BODY.
template <typename Work>
INLINED auto for_this_processor(Work work) {
    switch (processor()) {
        case Processor::AVX512: return with_avx512(work);
        case Processor::AVX2: return with_avx2(work);
        default: return work();
    }
}

#else

inline Processor processor() { return Processor::PLAIN; }

template <typename Work>
INLINED auto for_this_processor(Work work) {
    return work();
}

#endif

inline bool has_avx2() { return processor() != Processor::PLAIN; }

}  // namespace keyblock
