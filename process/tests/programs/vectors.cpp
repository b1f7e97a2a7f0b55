/*
 * Threads that compute in vector registers, pass a token through mutexes and condition variables,
 * and throw exceptions. Each checks its own results; runs for a while after "go" appears.
 */
#include <immintrin.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static std::atomic<bool> stop;
static std::atomic<long> rounds, wrong;
static std::mutex mutex;
static std::condition_variable turn;
static int token;
static thread_local long own = 0;

__attribute__((target("avx2"))) static void vectors(int number)
{
	while (!stop) {
		__m256d a = _mm256_set1_pd(number + 0.5);
		__m256d sum = _mm256_setzero_pd();
		__m256d b = _mm256_set_pd(1, 2, 3, 4);

		/* Everything stays in registers for about a millisecond. */
		for (int i = 0; i < 300000; i++)
			sum = _mm256_add_pd(sum, _mm256_mul_pd(a, b));
		double out[4];
		_mm256_storeu_pd(out, sum);
		for (int i = 0; i < 4; i++)
			if (out[i] != 300000.0 * (number + 0.5) * (4 - i))
				wrong++;
		own++;
		rounds++;
	}
	if (own == 0)
		wrong++;
}

static void pass(int number, int of)
{
	long mine = 0;

	while (!stop) {
		std::unique_lock<std::mutex> lock(mutex);
		turn.wait_for(lock, std::chrono::seconds(20), [&] { return token % of == number || stop; });
		if (stop)
			break;
		token++;
		mine++;
		turn.notify_all();
		try {
			if (mine % 64 == 0)
				throw std::runtime_error("on purpose");
		} catch (const std::runtime_error &) {
			rounds++;
		}
	}
	if (token < 10)
		wrong++;
}

int main()
{
	std::vector<std::thread> threads;

	for (int i = 0; i < 3; i++)
		threads.emplace_back(vectors, i + 1);
	for (int i = 0; i < 4; i++)
		threads.emplace_back(pass, i, 4);
	setvbuf(stdout, nullptr, _IONBF, 0);
	while (rounds < 20)
		usleep(1000);
	printf("ready\n");
	while (access("go", F_OK))
		usleep(10000);
	long before = rounds;
	for (int i = 0; i < 5000 && rounds < before + 50; i++)
		usleep(2000);
	if (rounds < before + 50)
		wrong++;
	stop = true;
	turn.notify_all();
	for (auto &thread : threads)
		thread.join();
	printf("wrong %ld of %ld\n", wrong.load(), rounds.load());
	return wrong != 0;
}
