/*
 * Executes a program step by step, and writes down every address of its code when it is executed for the first time.
 *
 *     steps OUT FIRST END PROGRAM [ARGUMENT]...
 *
 * OUT gets one address in each line, of those from FIRST up to END, all in hexadecimal digits. Processes that the program makes
 * are followed until they execute another program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int give_up(const char *attempt)
{
	perror(attempt);
	return 1;
}

int main(int count, char **words)
{
	if (count < 5) {
		fprintf(stderr, "usage: steps OUT FIRST END PROGRAM [ARGUMENT]...\n");
		return 2;
	}
	unsigned long first = strtoul(words[2], NULL, 16), end = strtoul(words[3], NULL, 16);
	FILE *out = fopen(words[1], "w");
	unsigned char *seen = end > first ? calloc(end - first, 1) : NULL;
	if (!out || !seen)
		return give_up("prepare");
	pid_t program = fork();
	if (program < 0)
		return give_up("fork");
	if (program == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(words[4], words + 4);
		_exit(127);
	}
	int status, ended = 1;
	if (waitpid(program, &status, 0) != program || !WIFSTOPPED(status))
		return give_up("start the program");
	long follow = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
		      PTRACE_O_EXITKILL;
	if (ptrace(PTRACE_SETOPTIONS, program, 0, follow) || ptrace(PTRACE_SINGLESTEP, program, 0, 0))
		return give_up("follow the program");
	for (;;) {
		pid_t one = waitpid(-1, &status, __WALL);
		if (one < 0 && errno == EINTR)
			continue;
		if (one < 0)
			break;
		if (!WIFSTOPPED(status)) {
			if (one != program)
				continue;
			ended = !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
			break;
		}
		int stopped_by = WSTOPSIG(status);
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8) && one != program) {
			ptrace(PTRACE_DETACH, one, 0, 0);
			continue;
		}
		long at = ptrace(PTRACE_PEEKUSER, one, offsetof(struct user_regs_struct, rip), 0);
		unsigned long address = (unsigned long)at;
		if (address >= first && address < end && !seen[address - first]) {
			seen[address - first] = 1;
			fprintf(out, "%lx\n", address);
		}
		long pass_on = stopped_by == SIGTRAP || stopped_by == SIGSTOP ? 0 : stopped_by;
		ptrace(PTRACE_SINGLESTEP, one, 0, pass_on);
	}
	if (fclose(out))
		return give_up("write the addresses");
	return ended;
}
