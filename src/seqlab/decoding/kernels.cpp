// What decoding on the CPU spends its time on: linear maps of a few rows, and attention of one new position a row.
//
// In both, a number is one chain of operations whose order depends on nothing but its own row: not on the other rows,
// nor on the tile and the thread that they fall to. So are its bits.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <omp.h>

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, TALLEST = 12;  // a tile of 12 rows by 2 panels fills 24 of 32 registers
#else
constexpr int LANES = 8, TALLEST = 4;
#endif

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Integers __attribute__((vector_size(4 * LANES)));

// eˣ = 2ⁿ eʳ with n = round(x / ln 2), and a polynomial for eʳ (Cephes)
inline Vector exponential(Vector x) {
    const Vector least = Vector{} - 87.0f, most = Vector{} + 88.0f;
    x = x < least ? least : x;
    x = x > most ? most : x;
    const float shift = 12582912.0f;  // adding 1.5 · 2²³ and taking it away again rounds
    Vector n = (x * 1.44269504f + shift) - shift;
    Vector r = x - n * 0.693359375f - n * -2.12194440e-4f;  // ln 2 in two parts
    Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (Vector)((__builtin_convertvector(n, Integers) + 127) << 23);
}

// ------------------------------------------------------------------ linear maps
//
// Y = X Wᵀ + b, and the same with gelu on top: every number of Y is b + w₁x₁ + w₂x₂ + … in this order.
//
// W is stored in panels of LANES outputs, a panel as inputs × LANES: a step of the chain reads one vector of weights and
// multiplies it by one number of each row. Few rows are bound by reading the weights, so several panels are read at a
// time; many are bound by arithmetic, so a tile of rows shares what was read.

constexpr int GROUP = 4;    // panels that all rows pass before the next ones are read
constexpr int AHEAD = 512;  // numbers to ask memory for ahead of use

struct Map {
    const float *weights, *bias;
    float *y;
    long inputs, outputs;
    bool gelu;
};

// ½ x (1 + tanh u) = x / (1 + e⁻²ᵘ) with u = √(2/π) (x + 0.044715 x³)
inline Vector gelu(Vector x) { return x / (1.0f + exponential(-1.59576912f * (x + 0.044715f * x * x * x))); }

inline void store(const Map &map, Vector sum, long row, long panel) {
    if (map.gelu) sum = gelu(sum);
    const long first = panel * LANES, count = std::min<long>(LANES, map.outputs - first);
    float *to = map.y + row * map.outputs + first;
    if (count == LANES)
        *(Vector *)to = sum;
    else
        std::memcpy(to, &sum, 4 * count);
}

// x is stored as inputs × ROWS
template <int ROWS, int PANELS> void tile(const Map &map, const float *x, long row, long panel) {
    const long stride = map.inputs * LANES;
    const float *weights = map.weights + panel * stride;
    Vector sums[ROWS][PANELS];
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PANELS; p++) sums[r][p] = *(const Vector *)(map.bias + (panel + p) * LANES);
    for (long i = 0; i < map.inputs; i++) {
        Vector w[PANELS];
#pragma GCC unroll 4
        for (int p = 0; p < PANELS; p++) {
            w[p] = *(const Vector *)(weights + p * stride + i * LANES);
            __builtin_prefetch(weights + p * stride + i * LANES + AHEAD);
        }
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; p++) sums[r][p] += w[p] * x[i * ROWS + r];
    }
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PANELS; p++) store(map, sums[r][p], row + r, panel + p);
}

template <int ROWS, int PANELS> void tiles(const Map &map, const float *x, long row, long panel, long count) {
    for (; count >= PANELS; count -= PANELS, panel += PANELS) tile<ROWS, PANELS>(map, x, row, panel);
    for (; count > 0; count--, panel++) tile<ROWS, 1>(map, x, row, panel);
}

// The rows of the next tile, when so many are left.
inline int height(long rows) {
    for (int rows_of_a_tile : {TALLEST, 8, 4, 2})
        if (rows_of_a_tile <= TALLEST && rows_of_a_tile <= rows) return rows_of_a_tile;
    return 1;
}

void group(const Map &map, const float *x, long rows, long panel, long count) {
    for (long row = 0, tall; row < rows; row += tall) {
        tall = height(rows - row);
        const float *here = x + row * map.inputs;
        switch (tall) {
            case 12: tiles<12, 2>(map, here, row, panel, count); break;
            case 8: tiles<8, 2>(map, here, row, panel, count); break;
            case 4: tiles<4, LANES == 16 ? 4 : 2>(map, here, row, panel, count); break;
            case 2: tiles<2, 4>(map, here, row, panel, count); break;
            default: tiles<1, 4>(map, here, row, panel, count);
        }
    }
}

// Tile after tile, from rows × inputs to inputs × rows.
void transpose(const float *x, float *to, long rows, long inputs) {
    for (long row = 0, tall; row < rows; row += tall) {
        tall = height(rows - row);
        for (long r = row; r < row + tall; r++)
            for (long i = 0; i < inputs; i++) to[row * inputs + i * tall + r - row] = x[r * inputs + i];
    }
}

// ------------------------------------------------------------------ attention
//
// One head of one row: softmax(q · kⱼ / √K) over all positions j so far, and the mean of vⱼ under it.

// The vector of `width` numbers that begins at `first`, filled up with zeros.
inline Vector load(const float *from, long first, long width) {
    if (first + LANES <= width) return *(const Vector *)(from + first);
    Vector part = {};
    if (first < width) std::memcpy(&part, from + first, 4 * (width - first));
    return part;
}

inline float total(Vector x) {
    float parts[LANES];
    std::memcpy(parts, &x, sizeof parts);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

// `weights` is room for `length` numbers, rounded up to LANES.
void head(const float *q, const float *keys, const float *values, float *y, float *weights, long length, long width) {
    const float scale = 1 / std::sqrt((float)width);
    float most = -INFINITY;
    for (long j = 0; j < length; j++) {
        Vector products = {};
        for (long i = 0; i < width; i += LANES) products += load(q, i, width) * load(keys + j * width, i, width);
        weights[j] = scale * total(products);
        most = std::max(most, weights[j]);
    }
    Vector sums = {};
    for (long j = 0; j < length; j += LANES) {
        Vector here = exponential(load(weights, j, length) - most);
        for (long l = length - j; l < LANES; l++) here[l] = 0;
        std::memcpy(weights + j, &here, sizeof here);
        sums += here;
    }
    const float sum = total(sums);
    constexpr int AT_ONCE = 4;
    for (long first = 0; first < width; first += AT_ONCE * LANES) {
        Vector means[AT_ONCE] = {};
        for (long j = 0; j < length; j++)
            for (int p = 0; p < AT_ONCE; p++) means[p] += weights[j] * load(values + j * width, first + p * LANES, width);
        for (int p = 0; p < AT_ONCE; p++) means[p] /= sum;
        std::memcpy(y + first, means, 4 * std::min<long>(AT_ONCE * LANES, width - first));
    }
}

}  // namespace

extern "C" {

int lanes() { return LANES; }

// Gives 0, or 1 when there is no memory.
int linear(const float *x, const float *weights, const float *bias, float *y, long rows, long inputs, long outputs,
           int with_gelu, int threads) {
    const Map map = {weights, bias, y, inputs, outputs, with_gelu != 0};
    float *turned = nullptr;
    if (rows > 1 && !(turned = (float *)std::malloc(sizeof(float) * rows * inputs))) return 1;
    const long groups = (outputs + GROUP * LANES - 1) / (GROUP * LANES), panels = (outputs + LANES - 1) / LANES;
#pragma omp parallel num_threads(threads)
    {
        if (turned) {
#pragma omp for schedule(static)
            for (long row = 0; row < rows; row += TALLEST)
                transpose(x + row * inputs, turned + row * inputs, std::min<long>(TALLEST, rows - row), inputs);
        }
#pragma omp for schedule(static) nowait
        for (long g = 0; g < groups; g++)
            group(map, turned ? turned : x, rows, g * GROUP, std::min<long>(GROUP, panels - g * GROUP));
    }
    std::free(turned);
    return 0;
}

// The new position of each row has `qkv`, (rows, 3, heads, width); its key and its value are written to the caches,
// (rows, heads, capacity, width), at `positions`, and y is (rows, heads, width).
int attend(const float *qkv, float *keys, float *values, const long *positions, float *y, long rows, long heads,
           long capacity, long width, int threads) {
    const long room = (capacity + LANES - 1) / LANES * LANES;
    float *weights = (float *)std::malloc(sizeof(float) * room * threads);
    if (!weights) return 1;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (long n = 0; n < rows * heads; n++) {
        const long row = n / heads, position = positions[row], bytes = sizeof(float) * width;
        const float *q = qkv + (row * 3 * heads + n % heads) * width;
        float *k = keys + n * capacity * width, *v = values + n * capacity * width;
        std::memcpy(k + position * width, q + heads * width, bytes);
        std::memcpy(v + position * width, q + 2 * heads * width, bytes);
        head(q, k, v, y + n * width, weights + omp_get_thread_num() * room, position + 1, width);
    }
    std::free(weights);
    return 0;
}
}
