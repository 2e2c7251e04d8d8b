// Message passing on a 4-connected lattice with one core, and its derivative: the roofline of speed.py.
//
//   roofline PROBLEM ANSWER ITERATIONS REPEATS
//
// PROBLEM is binary: six int64 (height, width, labels, bytes per number: 8 or 4, 1 for one table per edge or
// 0 for shared tables, 1 if there is a derivative of marginals or 0), two float64 (rho of horizontal and
// vertical edges), then float64 arrays: unary potentials (height, width, labels), horizontal tables (1 or
// height * (width - 1), labels, labels), vertical tables (1 or (height - 1) * width, labels, labels), with
// rows for the left or upper node, and the derivative (height, width, labels). ANSWER is written as float64:
// marginals (height, width, labels), and with a derivative those of all potentials, in the order above.
// Prints one line of JSON: CPU seconds of all iterations, and of forward and backward, one number per repeat.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "roofline_gradient.h"

#ifndef LABELS
#define LABELS 2, 5, 8, 21
#endif

namespace {

struct Answer {
    std::vector<double> mu, unary, tables[2], seconds, gradient_seconds;
};

double now() {  // of this thread, so that other processes matter less
#ifdef CLOCK_THREAD_CPUTIME_ID
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
#else
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
#endif
}

template <class T, int K, Power P, bool PerEdge>
void run(const Problem &problem, int iterations, int repeats, Answer &answer) {
    Gradient<T, K, P, PerEdge> lattice(problem, problem.with_gradient ? iterations : 0);
    for (int repeat = 0; repeat < repeats; ++repeat) {
        lattice.restart();
        const double start = now();
        lattice.iterate(iterations);
        answer.seconds.push_back(now() - start);
        if (!problem.with_gradient) continue;
        lattice.restart();
        const double first = now();
        lattice.forward();
        const double forward = now() - first;
        lattice.read(problem, answer.mu);
        lattice.seed(problem, answer.mu);
        const double second = now();
        lattice.backward();
        answer.gradient_seconds.push_back(forward + now() - second);
    }
    lattice.read(problem, answer.mu);
    if (problem.with_gradient) lattice.read_gradient(problem, answer.unary, answer.tables);
}

template <class T, int K, Power P, class... Args> void by_tables(const Problem &problem, Args &&...args) {
    problem.per_edge ? run<T, K, P, true>(problem, args...) : run<T, K, P, false>(problem, args...);
}

template <class T, int K, class... Args> void by_power(const Problem &problem, Args &&...args) {
    if (problem.rho[0] == 1 && problem.rho[1] == 1) return by_tables<T, K, Power::one>(problem, args...);
    if (problem.rho[0] == .5 && problem.rho[1] == .5) return by_tables<T, K, Power::half>(problem, args...);
    return by_tables<T, K, Power::any>(problem, args...);
}

template <int K, class... Args> void by_labels(const Problem &problem, Args &&...args) {
    if (problem.labels != K) return;
    problem.bytes == 8 ? by_power<double, K>(problem, args...) : by_power<float, K>(problem, args...);
}

template <int... K, class... Args> void dispatch(const Problem &problem, Args &&...args) {
    (by_labels<K>(problem, args...), ...);
}

void read_numbers(std::ifstream &file, std::vector<double> &numbers, int64_t n) {
    numbers.resize(n);
    file.read(reinterpret_cast<char *>(numbers.data()), n * sizeof(double));
}

void write_numbers(std::ofstream &file, const std::vector<double> &numbers) {
    file.write(reinterpret_cast<const char *>(numbers.data()), numbers.size() * sizeof(double));
}

void print_numbers(const char *name, const std::vector<double> &numbers) {
    std::printf("\"%s\": [", name);
    for (size_t i = 0; i < numbers.size(); ++i) std::printf("%s%.9g", i ? ", " : "", numbers[i]);
    std::printf("]");
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) return std::fprintf(stderr, "usage: roofline PROBLEM ANSWER ITERATIONS REPEATS\n"), 2;
    Problem problem;
    std::ifstream file(argv[1], std::ios::binary);
    file.read(reinterpret_cast<char *>(&problem), 6 * sizeof(int64_t) + 2 * sizeof(double));
    if (!file) return std::fprintf(stderr, "roofline: cannot read the problem in %s\n", argv[1]), 1;
    const int64_t nodes = problem.height * problem.width, table = problem.labels * problem.labels;
    read_numbers(file, problem.unary, nodes * problem.labels);
    for (int axis = 0; axis < 2; ++axis)
        read_numbers(file, problem.tables[axis], (problem.per_edge ? problem.edges(axis) : 1) * table);
    if (problem.with_gradient) read_numbers(file, problem.d_mu, nodes * problem.labels);
    if (!file) return std::fprintf(stderr, "roofline: the problem in %s is cut short\n", argv[1]), 1;
    Answer answer;
    answer.mu.resize(problem.unary.size()), answer.unary.resize(problem.unary.size());
    for (int axis = 0; axis < 2; ++axis) answer.tables[axis].resize(problem.tables[axis].size());
    dispatch<LABELS>(problem, std::atoi(argv[3]), std::max(1, std::atoi(argv[4])), answer);
    const int labels = int(problem.labels);
    if (answer.seconds.empty())
        return std::fprintf(stderr, "roofline: not compiled for %d labels\n", labels), 1;
    std::ofstream out(argv[2], std::ios::binary);
    write_numbers(out, answer.mu);
    if (problem.with_gradient) {
        write_numbers(out, answer.unary);
        for (const auto &tables : answer.tables) write_numbers(out, tables);
    }
    std::printf("{");
    print_numbers("seconds", answer.seconds);
    std::printf(", ");
    print_numbers("gradient_seconds", answer.gradient_seconds);
    std::printf("}\n");
}
