// Vectors and aligned arrays of the roofline.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __AVX__
#include <immintrin.h>
#endif
#if defined(__AVX2__) && defined(__GLIBC__)
#define VECTOR_MATH  // vectorised exp and log, which compilers find only in simple loops
extern "C" {
__m256d _ZGVdN4v_exp(__m256d);
__m256d _ZGVdN4v_log(__m256d);
__m256 _ZGVdN8v_expf(__m256);
__m256 _ZGVdN8v_logf(__m256);
#ifdef __AVX512F__
__m512d _ZGVeN8v_exp(__m512d);
__m512d _ZGVeN8v_log(__m512d);
__m512 _ZGVeN16v_expf(__m512);
__m512 _ZGVeN16v_logf(__m512);
#endif
}
#endif

// Bytes per vector, at most.
#ifdef __AVX512F__
constexpr int widest = 64;
#else
constexpr int widest = 32;
#endif

template <class T, int Bytes> struct VectorOf {
    typedef T type __attribute__((vector_size(Bytes), may_alias));
};
template <class T, int Bytes> using Vector = typename VectorOf<T, Bytes>::type;

// The reciprocal square root.
template <class T, class V> inline V inverse_root(V v) {
#ifdef __AVX512F__
    if constexpr (sizeof(V) == 64) {  // 14 bits, doubled by every step of Newton's method
        V r;
        if constexpr (sizeof(T) == 8) r = V(_mm512_rsqrt14_pd(__m512d(v)));
        else r = V(_mm512_rsqrt14_ps(__m512(v)));
        const V half = T(0.5) * v;
        for (int i = 0; i < (sizeof(T) == 8 ? 2 : 1); ++i) r = r * (T(1.5) - half * r * r);
        return r;
    }
#endif
#ifdef __AVX__
    if constexpr (sizeof(V) == 32 && sizeof(T) == 8) return 1 / V(_mm256_sqrt_pd(__m256d(v)));
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4) return 1 / V(_mm256_sqrt_ps(__m256(v)));
#endif
    constexpr int W = sizeof(V) / sizeof(T);
    alignas(sizeof(V)) T values[W];  // in memory, so that the compiler vectorises the loop
    *reinterpret_cast<V *>(values) = v;
    for (int i = 0; i < W; ++i) values[i] = 1 / std::sqrt(values[i]);
    return *reinterpret_cast<V *>(values);
}

template <class T, class V> inline V inverse(V v) {
#ifdef __AVX512F__
    if constexpr (sizeof(V) == 64) {
        V r;
        if constexpr (sizeof(T) == 8) r = V(_mm512_rcp14_pd(__m512d(v)));
        else r = V(_mm512_rcp14_ps(__m512(v)));
        for (int i = 0; i < (sizeof(T) == 8 ? 2 : 1); ++i) r = r * (2 - v * r);
        return r;
    }
#endif
    return 1 / v;
}

template <class T, class V> inline V power(V v, T exponent) {
#ifdef VECTOR_MATH
#ifdef __AVX512F__
    if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
        return V(_ZGVeN8v_exp(__m512d(exponent * V(_ZGVeN8v_log(__m512d(v))))));
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
        return V(_ZGVeN16v_expf(__m512(exponent * V(_ZGVeN16v_logf(__m512(v))))));
#endif
    if constexpr (sizeof(V) == 32 && sizeof(T) == 8)
        return V(_ZGVdN4v_exp(__m256d(exponent * V(_ZGVdN4v_log(__m256d(v))))));
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4)
        return V(_ZGVdN8v_expf(__m256(exponent * V(_ZGVdN8v_logf(__m256(v))))));
#endif
    for (int i = 0; i < int(sizeof(V) / sizeof(T)); ++i) v[i] = std::pow(v[i], exponent);
    return v;
}

// Transpose a square of vectors: swap the halves of pairs of rows at distance S, then at distance S / 2.
template <int S, class V, int... J> inline void swap_halves(V &a, V &b, std::integer_sequence<int, J...>) {
    constexpr int W = sizeof...(J);
    const V low = __builtin_shufflevector(a, b, (J & S ? W + J - S : J)...);
    b = __builtin_shufflevector(a, b, (J & S ? W + J : J + S)...);
    a = low;
}

template <int S, class V, int W> inline void transpose(V (&rows)[W]) {
    if constexpr (S > 0) {
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i)
            if (!(i & S)) swap_halves<S>(rows[i], rows[i + S], std::make_integer_sequence<int, W>());
        transpose<S / 2>(rows);
    }
}

template <class T> struct Array {  // aligned to cache lines, or to pages if large
    size_t size;
    std::unique_ptr<T, decltype(&std::free)> data;
    explicit Array(size_t n, T value = 1) : size(n), data(nullptr, &std::free) {
        const size_t page = size_t(1) << 21, unit = n * sizeof(T) < page ? 64 : page;
        const size_t bytes = (n * sizeof(T) / unit + 1) * unit;
        data.reset(static_cast<T *>(std::aligned_alloc(unit, bytes)));
#ifdef __linux__
        if (unit == page) madvise(data.get(), bytes, MADV_HUGEPAGE);
#endif
        std::fill_n(at(0), n, value);
    }
    T *at(size_t i) { return data.get() + i; }
};
