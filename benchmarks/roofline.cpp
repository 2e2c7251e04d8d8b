// Message passing on a 4-connected lattice with one core: the roofline of speed.py.
//
//   roofline PROBLEM MARGINALS ITERATIONS REPEATS
//
// PROBLEM is binary: six int64 (height, width, labels, bytes per number: 8 or 4, 1 for one table per edge or
// 0 for shared tables, 0), two float64 (rho of horizontal and vertical edges), then float64 potentials: unary
// (height, width, labels), horizontal tables (1 or height * (width - 1), labels, labels), vertical tables
// (1 or (height - 1) * width, labels, labels), with rows for the left or upper node. MARGINALS is written as
// float64 (height, width, labels). Prints one line of JSON: seconds of all iterations, one number per repeat.
//
// A sweep is sequential along one axis and independent along the other. Arrays have the shape (tile, position
// along the sweep, label, lane), where lanes are neighbouring rows (or columns), so that all operations are
// on full vectors. Messages are probabilities; potentials are exponentiated once; with two labels everything
// is the ratio of the second to the first.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

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
}
#endif

#ifndef LABELS
#define LABELS 2, 5, 8, 21
#endif

namespace {

enum class Power { one, half, any };  // the power rho: 1 is free, 1/2 a square root, others pow

constexpr int vector_bytes = 32;
template <class T> struct VectorOf { typedef T type __attribute__((vector_size(vector_bytes), may_alias)); };
template <class T> using Vector = typename VectorOf<T>::type;
template <class T> constexpr int width_of = vector_bytes / sizeof(T);

template <class T> inline Vector<T> root(Vector<T> v) {
#ifdef __AVX__
    if constexpr (sizeof(T) == 8) return _mm256_sqrt_pd(v);
#endif
    alignas(vector_bytes) T values[width_of<T>];  // in memory, so that the compiler vectorises the loop
    *reinterpret_cast<Vector<T> *>(values) = v;
    for (int i = 0; i < width_of<T>; ++i) values[i] = std::sqrt(values[i]);
    return *reinterpret_cast<Vector<T> *>(values);
}

template <class T> inline Vector<T> power(Vector<T> v, T exponent) {
#ifdef VECTOR_MATH
    if constexpr (sizeof(T) == 8) return _ZGVdN4v_exp(exponent * _ZGVdN4v_log(v));
    else return _ZGVdN8v_expf(exponent * _ZGVdN8v_logf(v));
#else
    for (int i = 0; i < width_of<T>; ++i) v[i] = std::pow(v[i], exponent);
    return v;
#endif
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
#pragma GCC unroll 8
        for (int i = 0; i < W; ++i)
            if (!(i & S)) swap_halves<S>(rows[i], rows[i + S], std::make_integer_sequence<int, W>());
        transpose<S / 2>(rows);
    }
}

template <class T> struct Array {  // aligned to cache lines, filled with ones
    size_t size;
    std::unique_ptr<T, decltype(&std::free)> data;
    explicit Array(size_t n)
        : size(n), data(static_cast<T *>(std::aligned_alloc(64, (n * sizeof(T) / 64 + 1) * 64)), &std::free) {
        std::fill_n(at(0), n, T(1));
    }
    T *at(size_t i) { return data.get() + i; }
};

struct Problem {
    int64_t height, width, labels, bytes, per_edge, unused;
    double rho[2];
    std::vector<double> unary, tables[2];
    int64_t edges(int axis) const { return axis == 0 ? height * (width - 1) : (height - 1) * width; }
};

template <class T, int K, Power P, bool PerEdge> class Lattice {
    static constexpr int N = K == 2 ? 1 : K;       // numbers per message
    static constexpr int M = K == 2 ? 3 : K * K;   // numbers per table; two labels: divided by the first
    // Vectors per lane group: enough to hide latencies, few enough to keep a tile in the cache.
    static constexpr int G = K == 2 ? 4 : K > 5 && K < 16 ? 1 : 2;
    static constexpr int L = G * width_of<T>;      // lanes per tile
    using V = Vector<T>;

    // The sweeps along one axis. `field` is exp(unary) times the messages of the other axis; `unary` is
    // exp(unary). `reverse` is the message from the next position to the power rho - 1; unused for rho = 1.
    struct Axis {
        int64_t tiles, length;
        T rho;
        Array<T> unary{0}, field{0}, reverse{0}, tables{0};
        T shared[2][M];  // the table of forward and of backward messages
    };
    Axis axes[2];
    Array<T> arrived, divisor;  // forward messages of one tile to the powers rho and rho - 1

    static size_t place(const Axis &a, int64_t tile, int64_t position) {
        return (tile * a.length + position) * N * L;
    }

    static V *vectors(T *at) { return reinterpret_cast<V *>(at); }

    // One message from the cavity x: m(y) = sum_z table(z, y) x(z), normalised. Stores its powers rho and
    // rho - 1; the next cavity starts from the former.
    static inline void send(const Axis &axis, const V *table, int backward, const V (&x)[N][G], V (&q)[N][G],
                            V *divisor) {
        auto entry = [&](int source, int target, int g) -> V {
            if constexpr (PerEdge)
                return table[((backward ? target * K + source : source * K + target) - (K == 2)) * G + g];
            else
                return V{} + axis.shared[backward][source * K + target - (K == 2)];
        };
        if constexpr (K == 2) {
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) {
                const V above = entry(0, 1, g) + entry(1, 1, g) * x[0][g];
                const V below = 1 + entry(1, 0, g) * x[0][g];
                if constexpr (P == Power::one) q[0][g] = above / below;
                if constexpr (P == Power::half) {  // one root and one division for both powers
                    const V scale = 1 / root<T>(above * below);
                    q[0][g] = above * scale, divisor[g] = below * scale;
                }
                if constexpr (P == Power::any) {
                    const V ratio = above / below;
                    q[0][g] = power<T>(ratio, axis.rho), divisor[g] = q[0][g] / ratio;
                }
            }
            return;
        }
        // Number of targets whose sums fit into registers.
        constexpr int B = K <= 5 ? K : K % 4 == 0 ? 4 : K % 3 == 0 ? 3 : 1;
        V total[G] = {};
        for (int first = 0; first < K; first += B) {
            V sum[B][G] = {};
#pragma GCC unroll 8
            for (int z = 0; z < K; ++z)
#pragma GCC unroll 8
                for (int y = 0; y < B; ++y)
#pragma GCC unroll 8
                    for (int g = 0; g < G; ++g) sum[y][g] += entry(z, first + y, g) * x[z][g];
#pragma GCC unroll 8
            for (int y = 0; y < B; ++y)
#pragma GCC unroll 8
                for (int g = 0; g < G; ++g) q[first + y][g] = sum[y][g], total[g] += sum[y][g];
        }
#pragma GCC unroll 8
        for (int g = 0; g < G; ++g) total[g] = 1 / total[g];
#pragma GCC unroll 8
        for (int y = 0; y < K; ++y)
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) {
                const V m = q[y][g] * total[g];
                q[y][g] = P == Power::one ? m : P == Power::half ? root<T>(m) : power<T>(m, axis.rho);
                if constexpr (P == Power::half) divisor[y * G + g] = 1 / q[y][g];
                if constexpr (P == Power::any) divisor[y * G + g] = q[y][g] / m;
            }
    }

    static inline void cavity(const V *field, const V *divisor, const V (&q)[N][G], V (&x)[N][G]) {
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
            for (int g = 0; g < G; ++g) {
                x[n][g] = field[n * G + g] * q[n][g];
                if constexpr (P != Power::one) x[n][g] *= divisor[n * G + g];
            }
    }

    static V *table(Axis &a, int64_t tile, int64_t edge) {
        return PerEdge ? vectors(a.tables.at((tile * (a.length - 1) + edge) * M * L)) : nullptr;
    }

    static void ones(V (&q)[N][G]) {
        for (auto &row : q)
            for (V &v : row) v = V{} + 1;
    }

    void forward(Axis &a, int64_t tile) {
        V q[N][G], x[N][G];
        ones(q);
        for (int64_t p = 0; p + 1 < a.length; ++p) {
            const size_t here = place(a, tile, p), next = (p + 1) * N * L;
            cavity(vectors(a.field.at(here)), vectors(a.reverse.at(P == Power::one ? 0 : here)), q, x);
            send(a, table(a, tile, p), 0, x, q, vectors(divisor.at(P == Power::one ? 0 : next)));
            V *to = vectors(arrived.at(next));
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
                for (int g = 0; g < G; ++g) to[n * G + g] = q[n][g];
        }
    }

    // The backward sweep. The product of both messages and exp(unary) goes to the other axis, block by block.
    void backward(Axis &a, int64_t tile, Axis &other) {
        alignas(64) T block[L * N * L];
        V q[N][G], x[N][G];
        std::fill_n(block, L * N * L, T(1));
        ones(q);
        for (int64_t p = a.length - 1;; --p) {
            const size_t here = place(a, tile, p);
            const V *sent = vectors(arrived.at(p * N * L)), *unary = vectors(a.unary.at(here));
            V *product = vectors(block + p % L * N * L);
#pragma GCC unroll 8
            for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
                for (int g = 0; g < G; ++g) product[n * G + g] = unary[n * G + g] * sent[n * G + g] * q[n][g];
            if (p % L == 0) cross(vectors(block), other, p / L, tile * L);
            if (p == 0) break;
            V *behind = vectors(a.reverse.at(P == Power::one ? 0 : here - N * L));
            cavity(vectors(a.field.at(here)), vectors(divisor.at(P == Power::one ? 0 : p * N * L)), q, x);
            send(a, table(a, tile, p - 1), 1, x, q, behind);
        }
    }

    static void cross(const V *block, Axis &to, int64_t tile, int64_t first) {
        constexpr int W = width_of<T>;
        const int64_t rows = std::min<int64_t>(L, to.length - first);
        for (int n = 0; n < N; ++n)
            for (int i = 0; i < G && i * W < rows; ++i)
                for (int j = 0; j < G; ++j) {
                    V square[W];
#pragma GCC unroll 8
                    for (int s = 0; s < W; ++s) square[s] = block[((j * W + s) * N + n) * G + i];
                    transpose<W / 2>(square);
                    const size_t at = place(to, tile, first + i * W) + n * L + j * W;
                    for (int s = 0; s < W && i * W + s < rows; ++s)
                        *vectors(to.field.at(at + s * N * L)) = square[s];
                }
    }

    void sweep(int axis) {
        for (int64_t tile = 0; tile < axes[axis].tiles; ++tile) {
            forward(axes[axis], tile);
            backward(axes[axis], tile, axes[1 - axis]);
        }
    }

public:
    explicit Lattice(const Problem &problem) : arrived(0), divisor(0) {
        const int64_t sizes[2] = {problem.height, problem.width};
        for (int axis = 0; axis < 2; ++axis) {
            Axis &a = axes[axis];
            a.tiles = (sizes[axis] + L - 1) / L, a.length = sizes[1 - axis], a.rho = T(problem.rho[axis]);
            const size_t size = size_t(a.tiles * a.length) * N * L;
            a.unary = Array<T>(size), a.field = Array<T>(size);
            a.reverse = Array<T>(P == Power::one ? N * L : size);
            a.tables = Array<T>(PerEdge ? size_t(a.tiles * (a.length - 1)) * M * L : 0);
            for (int64_t line = 0; line < sizes[axis]; ++line)
                for (int64_t p = 0; p < a.length; ++p) fill(problem, axis, line, p);
        }
        const size_t longest = size_t(std::max(axes[0].length, axes[1].length)) * N * L;
        arrived = Array<T>(longest), divisor = Array<T>(P == Power::one ? N * L : longest);
        restart();
    }

    void restart() {
        for (Axis &a : axes) {
            std::copy_n(a.unary.at(0), a.unary.size, a.field.at(0));
            std::fill_n(a.reverse.at(0), a.reverse.size, T(1));
        }
    }

    void iterate(int n) {
        for (int i = 0; i < n; ++i) sweep(0), sweep(1);
    }

    // The product of exp(unary) and all four messages; each field has exp(unary) and two of them.
    void read(const Problem &problem, std::vector<double> &mu) {
        for (int64_t r = 0; r < problem.height; ++r)
            for (int64_t c = 0; c < problem.width; ++c) {
                double *out = &mu[(r * problem.width + c) * K], total = 0;
                for (int x = 0; x < K; ++x) {
                    out[x] = 1;
                    if (K > 2 || x > 0) {
                        const size_t n = (x - (K == 2)) * L, h = cell(0, r, c) + n, v = cell(1, c, r) + n;
                        out[x] = double(*axes[0].field.at(h)) * *axes[1].field.at(v) / *axes[0].unary.at(h);
                    }
                    total += out[x];
                }
                for (int x = 0; x < K; ++x) out[x] /= total;
            }
    }

private:
    size_t cell(int axis, int64_t line, int64_t p) const { return place(axes[axis], line / L, p) + line % L; }

    void fill(const Problem &problem, int axis, int64_t line, int64_t p) {
        Axis &a = axes[axis];
        const int64_t row = axis == 0 ? line : p, column = axis == 0 ? p : line;
        const double *theta = &problem.unary[(row * problem.width + column) * K];
        const double base = K == 2 ? theta[0] : *std::max_element(theta, theta + K);
        for (int n = 0; n < N; ++n)
            *a.unary.at(cell(axis, line, p) + n * L) = T(std::exp(theta[n + (K == 2)] - base));
        if (p + 1 == a.length) return;
        const int64_t edge = axis == 0 ? row * (problem.width - 1) + column : row * problem.width + column;
        const double *pair = &problem.tables[axis][(PerEdge ? edge : 0) * K * K];
        const double top = K == 2 ? pair[0] : *std::max_element(pair, pair + K * K);
        for (int x = 0; x < K; ++x)
            for (int y = 0; y < K; ++y) {
                if (K == 2 && x + y == 0) continue;
                const T value = T(std::exp((pair[x * K + y] - top) / problem.rho[axis]));
                const int64_t n = x * K + y - (K == 2), tile = line / L;
                a.shared[0][n] = a.shared[1][y * K + x - (K == 2)] = value;
                if (PerEdge) *a.tables.at(((tile * (a.length - 1) + p) * M + n) * L + line % L) = value;
            }
    }
};

template <class T, int K, Power P, bool PerEdge>
std::vector<double> run(const Problem &problem, int iterations, int repeats, std::vector<double> &mu) {
    Lattice<T, K, P, PerEdge> lattice(problem);
    std::vector<double> seconds;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        lattice.restart();
        const auto start = std::chrono::steady_clock::now();
        lattice.iterate(iterations);
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    lattice.read(problem, mu);
    return seconds;
}

template <class T, int K, Power P, class... Args> auto by_tables(const Problem &problem, Args &&...args) {
    return problem.per_edge ? run<T, K, P, true>(problem, args...) : run<T, K, P, false>(problem, args...);
}

template <class T, int K, class... Args> auto by_power(const Problem &problem, Args &&...args) {
    if (problem.rho[0] == 1 && problem.rho[1] == 1) return by_tables<T, K, Power::one>(problem, args...);
    if (problem.rho[0] == .5 && problem.rho[1] == .5) return by_tables<T, K, Power::half>(problem, args...);
    return by_tables<T, K, Power::any>(problem, args...);
}

template <int K, class... Args>
void by_labels(std::vector<double> &seconds, const Problem &problem, Args &&...args) {
    if (problem.labels != K) return;
    const bool wide = problem.bytes == 8;
    seconds = wide ? by_power<double, K>(problem, args...) : by_power<float, K>(problem, args...);
}

template <int... K, class... Args> std::vector<double> dispatch(const Problem &problem, Args &&...args) {
    std::vector<double> seconds;
    (by_labels<K>(seconds, problem, args...), ...);
    return seconds;
}

void read_numbers(std::ifstream &file, std::vector<double> &numbers, int64_t n) {
    numbers.resize(n);
    file.read(reinterpret_cast<char *>(numbers.data()), n * sizeof(double));
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) return std::fprintf(stderr, "usage: roofline PROBLEM MARGINALS ITERATIONS REPEATS\n"), 2;
    Problem problem;
    std::ifstream file(argv[1], std::ios::binary);
    file.read(reinterpret_cast<char *>(&problem), 6 * sizeof(int64_t) + 2 * sizeof(double));
    if (!file) return std::fprintf(stderr, "roofline: cannot read the problem in %s\n", argv[1]), 1;
    const int64_t table = problem.labels * problem.labels;
    read_numbers(file, problem.unary, problem.height * problem.width * problem.labels);
    for (int axis = 0; axis < 2; ++axis)
        read_numbers(file, problem.tables[axis], (problem.per_edge ? problem.edges(axis) : 1) * table);
    if (!file) return std::fprintf(stderr, "roofline: the problem in %s is cut short\n", argv[1]), 1;
    std::vector<double> mu(problem.unary.size());
    const auto seconds = dispatch<LABELS>(problem, std::atoi(argv[3]), std::max(1, std::atoi(argv[4])), mu);
    const int labels = int(problem.labels);
    if (seconds.empty()) return std::fprintf(stderr, "roofline: not compiled for %d labels\n", labels), 1;
    std::ofstream answer(argv[2], std::ios::binary);
    answer.write(reinterpret_cast<char *>(mu.data()), mu.size() * sizeof(double));
    std::printf("{\"seconds\": [");
    for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.9g", i ? ", " : "", seconds[i]);
    std::printf("]}\n");
}
