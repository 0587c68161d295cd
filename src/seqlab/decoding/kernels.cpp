// What decoding on the CPU spends its time on: linear maps of a few rows, and blocks that read one new position a row.
//
// A number is one chain of operations whose order depends on nothing but its own row: not on the other rows, nor on the
// tile and the thread that they fall to. So are its bits.
//
// Functions marked "by all threads" are called inside a parallel region, share their work, and wait for each other.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <omp.h>

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, TALLEST = 12;  // a tile of 12 rows by 2 panels fills 24 of 32 registers
#else
constexpr int LANES = 8, TALLEST = 4;
#endif

typedef std::int64_t Size;
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Integers __attribute__((vector_size(4 * LANES)));

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};
typedef std::unique_ptr<float, Free> Room;

Room room(Size count) { return Room((float *)std::malloc(sizeof(float) * count)); }

Size rounded(Size count) { return (count + LANES - 1) / LANES * LANES; }

// The vector that begins at `first` of `count` numbers, filled up with zeros.
inline Vector load(const float *from, Size first, Size count) {
    if (first + LANES <= count) return *(const Vector *)(from + first);
    Vector part = {};
    if (first < count) std::memcpy(&part, from + first, 4 * (count - first));
    return part;
}

inline void store(Vector x, float *to, Size first, Size count) {
    if (first + LANES <= count)
        *(Vector *)(to + first) = x;
    else
        std::memcpy(to + first, &x, 4 * (count - first));
}

inline float total(Vector x) {
    float parts[LANES];
    std::memcpy(parts, &x, sizeof parts);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) parts[i] += parts[i + half];
    return parts[0];
}

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

// ½ x (1 + tanh u) = x / (1 + e⁻²ᵘ) with u = √(2/π) (x + 0.044715 x³)
inline Vector gelu(Vector x) { return x / (1.0f + exponential(-1.59576912f * (x + 0.044715f * x * x * x))); }

// ------------------------------------------------------------------ linear maps
//
// Y = f(X Wᵀ + b) + Z: a number of X Wᵀ + b is b + w₁x₁ + w₂x₂ + … in this order.
//
// W is stored in panels of LANES outputs, a panel as inputs × LANES: a step of the chain reads one vector of weights and
// multiplies it by one number of each row. Few rows are bound by reading the weights, so several panels are read at a
// time; many are bound by arithmetic, so a tile of rows shares what was read.

constexpr int GROUP = 4;    // panels that all rows pass before the next ones are read
constexpr int AHEAD = 512;  // numbers to ask memory for ahead of use

struct Map {
    const float *panels, *bias;
    Size inputs, outputs;
};

struct After {
    bool with_gelu;
    const float *add;
};

// x is stored as inputs × ROWS; y and what is added begin at the first of the rows.
template <int ROWS, int PANELS> void tile(const Map &map, const float *x, float *y, Size panel, After after) {
    const Size stride = map.inputs * LANES;
    const float *panels = map.panels + panel * stride;
    Vector sums[ROWS][PANELS];
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PANELS; p++) sums[r][p] = *(const Vector *)(map.bias + (panel + p) * LANES);
    for (Size i = 0; i < map.inputs; i++) {
        Vector w[PANELS];
#pragma GCC unroll 4
        for (int p = 0; p < PANELS; p++) {
            w[p] = *(const Vector *)(panels + p * stride + i * LANES);
            __builtin_prefetch(panels + p * stride + i * LANES + AHEAD);
        }
#pragma GCC unroll 12
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
            for (int p = 0; p < PANELS; p++) sums[r][p] += w[p] * x[i * ROWS + r];
    }
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PANELS; p++) {
            const Size row = r * map.outputs, first = (panel + p) * LANES;
            Vector sum = after.with_gelu ? gelu(sums[r][p]) : sums[r][p];
            if (after.add) sum += load(after.add + row, first, map.outputs);
            store(sum, y + row, first, map.outputs);
        }
}

template <int ROWS, int PANELS>
void tiles(const Map &map, const float *x, float *y, Size panel, Size count, After after) {
    for (; count >= PANELS; count -= PANELS, panel += PANELS) tile<ROWS, PANELS>(map, x, y, panel, after);
    for (; count > 0; count--, panel++) tile<ROWS, 1>(map, x, y, panel, after);
}

// How many rows the next tile has, when so many are left.
inline int height(Size rows) {
    for (int tall : {TALLEST, 8, 4, 2})
        if (tall <= TALLEST && tall <= rows) return tall;
    return 1;
}

void group(const Map &map, const float *x, float *y, Size rows, Size panel, Size count, After after) {
    while (rows > 0) {
        const int tall = height(rows);
        switch (tall) {
            case 12: tiles<12, 2>(map, x, y, panel, count, after); break;
            case 8: tiles<8, 2>(map, x, y, panel, count, after); break;
            case 4: tiles<4, LANES == 16 ? 4 : 2>(map, x, y, panel, count, after); break;
            case 2: tiles<2, 4>(map, x, y, panel, count, after); break;
            default: tiles<1, 4>(map, x, y, panel, count, after);
        }
        rows -= tall, x += tall * map.inputs, y += tall * map.outputs;
        if (after.add) after.add += tall * map.outputs;
    }
}

// Tile after tile, from rows × inputs to inputs × rows.
void turn(const float *x, float *to, Size rows, Size inputs) {
    while (rows > 0) {
        const int tall = height(rows);
        for (int r = 0; r < tall; r++)
            for (Size i = 0; i < inputs; i++) to[i * tall + r] = x[r * inputs + i];
        rows -= tall, x += tall * inputs, to += tall * inputs;
    }
}

// By all threads. `turned` is room for the inputs.
void apply(const Map &map, const float *x, float *turned, float *y, Size rows, After after = {}) {
#pragma omp for schedule(static)
    for (Size row = 0; row < rows; row += TALLEST)
        turn(x + row * map.inputs, turned + row * map.inputs, std::min<Size>(TALLEST, rows - row), map.inputs);
    const Size panels = rounded(map.outputs) / LANES;
#pragma omp for schedule(static)
    for (Size panel = 0; panel < panels; panel += GROUP)
        group(map, turned, y, rows, panel, std::min<Size>(GROUP, panels - panel), after);
}

// ------------------------------------------------------------------ norms and attention

struct Norm {
    const float *weight, *bias;
    float epsilon;
};

// (x − mean) / √(variance + ε) ∘ weight + bias, by all threads.
void normalise(const Norm &norm, const float *x, float *y, Size rows, Size width) {
#pragma omp for schedule(static)
    for (Size row = 0; row < rows; row++) {
        const float *from = x + row * width;
        Vector sums = {}, squares = {};
        for (Size i = 0; i < width; i += LANES) sums += load(from, i, width);
        const float mean = total(sums) / width;
        for (Size i = 0; i < width; i += LANES) {
            Vector apart = load(from, i, width) - mean;
            for (Size l = width - i; l < LANES; l++) apart[l] = 0;
            squares += apart * apart;
        }
        const float scale = 1 / std::sqrt(total(squares) / width + norm.epsilon);
        for (Size i = 0; i < width; i += LANES) {
            Vector z = (load(from, i, width) - mean) * scale;
            store(z * load(norm.weight, i, width) + load(norm.bias, i, width), y + row * width, i, width);
        }
    }
}

// softmax(q · kⱼ / √K) over the positions j so far, and the mean of vⱼ under it. `weights` is room for them, rounded up.
void head(const float *q, const float *keys, const float *values, float *y, float *weights, Size length, Size width) {
    const float scale = 1 / std::sqrt((float)width);
    float most = -INFINITY;
    for (Size j = 0; j < length; j++) {
        Vector products = {};
        for (Size i = 0; i < width; i += LANES) products += load(q, i, width) * load(keys + j * width, i, width);
        weights[j] = scale * total(products);
        most = std::max(most, weights[j]);
    }
    Vector sums = {};
    for (Size j = 0; j < length; j += LANES) {
        Vector here = exponential(load(weights, j, length) - most);
        for (Size l = length - j; l < LANES; l++) here[l] = 0;
        *(Vector *)(weights + j) = here;
        sums += here;
    }
    const float sum = total(sums);
    constexpr int AT_ONCE = 4;
    for (Size first = 0; first < width; first += AT_ONCE * LANES) {
        Vector means[AT_ONCE] = {};
        for (Size j = 0; j < length; j++)
            for (int p = 0; p < AT_ONCE; p++) means[p] += weights[j] * load(values + j * width, first + p * LANES, width);
        for (int p = 0; p < AT_ONCE && first + p * LANES < width; p++)
            store(means[p] / sum, y, first + p * LANES, width);
    }
}

// Keys and values of earlier positions, (rows, heads, capacity, K) each, and where the new ones belong.
struct Cache {
    float *keys, *values;
    const Size *positions;
    Size capacity;
};

// By all threads; qkv (rows, 3, heads, K) → y (rows, heads, K).
void attend(const float *qkv, const Cache &cache, float *y, float *weights, Size rows, Size heads, Size width) {
    weights += omp_get_thread_num() * rounded(cache.capacity);
#pragma omp for schedule(static)
    for (Size n = 0; n < rows * heads; n++) {
        const Size row = n / heads, position = cache.positions[row];
        const float *q = qkv + (row * 3 * heads + n % heads) * width;
        float *keys = cache.keys + n * cache.capacity * width, *values = cache.values + n * cache.capacity * width;
        std::memcpy(keys + position * width, q + heads * width, sizeof(float) * width);
        std::memcpy(values + position * width, q + 2 * heads * width, sizeof(float) * width);
        head(q, keys, values, y + n * width, weights, position + 1, width);
    }
}

}  // namespace

extern "C" {

int lanes() { return LANES; }

// Both give 0, or 1 when there is no memory.

int linear(const Map *map, const float *x, float *y, Size rows, int with_gelu, int threads) {
    const Room turned = room(rows * map->inputs);
    if (!turned) return 1;
#pragma omp parallel num_threads(threads)
    apply(*map, x, turned.get(), y, rows, {with_gelu != 0, nullptr});
    return 0;
}

struct Block {
    Norm norm_attend;
    Map query_key_value, output;
    Norm norm_feed;
    Map expand, contract;
    Size heads;
};

// y = x + attend(norm(x)), then y + feed(norm(y)), for one new position a row: x and y (rows, width)
int block(const Block *block, const Cache *cache, const float *x, float *y, Size rows, int threads) {
    const Size width = block->output.outputs, hidden = block->expand.outputs;
    const Room rooms[] = {room(rows * width), room(rows * std::max(3 * width, hidden)), room(rows * std::max(width, hidden)),
                          room(rounded(cache->capacity) * threads)};
    for (const Room &one : rooms)
        if (!one) return 1;
    float *narrow = rooms[0].get(), *wide = rooms[1].get(), *turned = rooms[2].get(), *weights = rooms[3].get();
#pragma omp parallel num_threads(threads)
    {
        normalise(block->norm_attend, x, narrow, rows, width);
        apply(block->query_key_value, narrow, turned, wide, rows);
        attend(wide, *cache, narrow, weights, rows, block->heads, width / block->heads);
        apply(block->output, narrow, turned, y, rows, {false, x});
        normalise(block->norm_feed, y, narrow, rows, width);
        apply(block->expand, narrow, turned, wide, rows, {true, nullptr});
        apply(block->contract, wide, turned, y, rows, {false, y});
    }
    return 0;
}
}
