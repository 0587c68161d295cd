// Vectors of numbers, for the target machine. NUMBER is the type of numbers: float unless defined as double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <omp.h>
#include <type_traits>

#ifndef NUMBER
#define NUMBER float
#endif

namespace {

typedef NUMBER Number;
typedef std::int64_t Size;
#ifdef __AVX512F__
constexpr int BYTES = 64;
#else
constexpr int BYTES = 32;
#endif
constexpr int LANES = BYTES / sizeof(Number);
typedef Number Vector __attribute__((vector_size(BYTES), aligned(sizeof(Number))));

// While it is alive, its thread treats denormal numbers (below 1e-38) as zero. Closed gates are such numbers, and
// arithmetic with them is a hundred times slower: a peephole LSTM took 15 times as long.
struct Flushed {
#if defined(__SSE__)
    const unsigned before = __builtin_ia32_stmxcsr();
    Flushed() { __builtin_ia32_ldmxcsr(before | 0x8040); }
    ~Flushed() { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__) && defined(__GNUC__)
    std::uint64_t before;
    Flushed() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" : : "r"(before | 1u << 24));
    }
    ~Flushed() { asm volatile("msr fpcr, %0" : : "r"(before)); }
#else
    Flushed() {}
#endif
};

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};
typedef std::unique_ptr<Number, Free> Room;

Room room(Size count) { return Room((Number *)std::malloc(sizeof(Number) * count)); }

Size rounded(Size count) { return (count + LANES - 1) / LANES * LANES; }

// The vector that begins at `first` of `count` numbers, padded with zeros.
inline Vector load(const Number *from, Size first, Size count) {
    if (first + LANES <= count) return *(const Vector *)(from + first);
    Vector part = {};
    if (first < count) std::memcpy(&part, from + first, sizeof(Number) * (count - first));
    return part;
}

inline void store(Vector x, Number *to, Size first, Size count) {
    if (first + LANES <= count)
        *(Vector *)(to + first) = x;
    else
        std::memcpy(to + first, &x, sizeof(Number) * (count - first));
}

// Calls body(j, whole) for every vector of `count` columns. `whole` is std::false_type for a last vector that is
// incomplete and std::true_type otherwise, so that only the former needs bounds checks.
template <typename Body> inline void over_columns(Size count, Body body) {
    Size j = 0;
    for (; j + LANES <= count; j += LANES) body(j, std::true_type());
    if (j < count) body(j, std::false_type());
}

inline Vector load(const Number *from, Size first, Size, std::true_type) { return *(const Vector *)(from + first); }
inline Vector load(const Number *from, Size first, Size count, std::false_type) { return load(from, first, count); }
inline void store(Vector x, Number *to, Size first, Size, std::true_type) { *(Vector *)(to + first) = x; }
inline void store(Vector x, Number *to, Size first, Size count, std::false_type) { store(x, to, first, count); }

inline Number total(Vector x) {
    Number parts[LANES];
    std::memcpy(parts, &x, sizeof parts);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

inline Number largest(Vector x) {
    Number most = x[0];
    for (int i = 1; i < LANES; i++) most = std::max(most, x[i]);
    return most;
}

// True for the columns from j on that are below `count`.
inline auto inside(Size j, Size count) {
    Vector columns;
    for (int i = 0; i < LANES; i++) columns[i] = i;
    return columns < Vector{} + Number(count - j);
}

template <typename Function> inline Vector each(Vector x, Function function) {
    for (int i = 0; i < LANES; i++) x[i] = function(x[i]);
    return x;
}

template <typename Value> struct Functions {
    static Vector exponential(Vector x) {
        return each(x, [](Number one) { return std::exp(one); });
    }
    static Vector tangent(Vector x) {
        return each(x, [](Number one) { return std::tanh(one); });
    }
};

// After Cephes, to within 2 units in the last place.
template <> struct Functions<float> {
    typedef int Integers __attribute__((vector_size(BYTES)));
    typedef float Floats __attribute__((vector_size(BYTES), aligned(4)));

    // eˣ = 2ⁿ eʳ with n = round(x / ln 2), and a polynomial for eʳ
    static Floats exponential(Floats x) {
        const Floats least = Floats{} - 87.0f, most = Floats{} + 88.0f;
        x = x < least ? least : x;
        x = x > most ? most : x;
        const float shift = 12582912.0f;  // adding and subtracting 1.5 · 2²³ rounds
        Floats n = (x * 1.44269504f + shift) - shift;
        Floats r = x - n * 0.693359375f - n * -2.12194440e-4f;  // ln 2 in two parts
        Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        p = p * r + 5.0000001201e-1f;
        p = p * r * r + r + 1.0f;
        return p * (Floats)((__builtin_convertvector(n, Integers) + 127) << 23);
    }

    // 1 − 2 / (e²ˣ + 1), and a polynomial where this suffers from cancellation
    static Floats tangent(Floats x) {
        Floats far = 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f), z = x * x;
        Floats p = z * -5.70498872745e-3f + 2.06390887954e-2f;
        p = p * z + -5.37397155531e-2f;
        p = p * z + 1.33314422036e-1f;
        p = p * z + -3.33332819422e-1f;
        return z < 0.390625f ? p * z * x + x : far;
    }
};

inline Vector exponential(Vector x) { return Functions<Number>::exponential(x); }
inline Vector tangent(Vector x) { return Functions<Number>::tangent(x); }
inline Vector sigmoid(Vector x) { return 1 / (1 + exponential(-x)); }

}  // namespace
