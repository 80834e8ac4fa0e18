// SPDX-License-Identifier: BSD-3-Clause
#include "cli/command_line.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/value.h"

namespace turnout::cli {
namespace {

int wrong_use(const std::string& command, std::string_view text) {
  fmt::print(stderr, "{}: {}\n{} --help lists what it accepts\n", command, text, command);
  return kWrongUse;
}

std::string unknown(std::string_view what, std::string_view word,
                    const std::vector<std::string>& known) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  std::string_view stem = word.substr(0, word.find('='));
  while (stem.starts_with('-')) stem.remove_prefix(1);
  const std::string_view near = value::nearest_name(stem, names);
  std::string text = fmt::format("unknown {} \"{}\"", what, word);
  if (!near.empty()) {
    text += fmt::format("; did you mean {}{}?", word.starts_with('-') ? "--" : "", near);
  }
  return text;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(one->get_name());
  }
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* one : app.get_options()) {
    const std::vector<std::string>& of_one = one->get_lnames();
    names.insert(names.end(), of_one.begin(), of_one.end());
  }
  return names;
}

// The subcommand that was named last, as far as that.
const CLI::App& innermost(const CLI::App& app, std::string* name) {
  const CLI::App* at = &app;
  *name = app.get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    *name += " " + at->get_name();
  }
  return *at;
}

int explain(const CLI::App& app, const CLI::ParseError& error) {
  std::string command;
  const CLI::App& at = innermost(app, &command);
  const std::vector<std::string> rest = app.remaining(true);
  const bool takes_commands = !commands_of(at).empty();
  if (!rest.empty()) {
    const std::string& word = rest.front();
    if (word.starts_with('-')) return wrong_use(command, unknown("option", word, options_of(at)));
    if (takes_commands) return wrong_use(command, unknown("command", word, commands_of(at)));
    return wrong_use(command, fmt::format("unexpected argument \"{}\"", word));
  }
  if (takes_commands && at.get_subcommands().empty()) {
    return wrong_use(command, "a command is missing");
  }
  return wrong_use(command, error.what());
}

// Output that nobody received (a full disk) is a failure; a reader that left (head) is none.
int finish(int code) {
  if (std::fflush(stdout) != 0 && errno != EPIPE) {
    std::perror("turnout: standard output");
    return kFailed;
  }
  return code;
}

}  // namespace

int complain(std::string_view program, const Status& status) {
  fmt::print(stderr, "{}: {}\n", program, status.text());
  return status.code() == Code::invalid ? kWrongUse : kFailed;
}

int run_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& end) {  // of a subcommand
    return finish(end.get_exit_code());
  } catch (const CLI::Success& success) {  // help, version
    return finish(app.exit(success));
  } catch (const CLI::ParseError& error) {
    return finish(explain(app, error));
  }
  return finish(0);
}

}  // namespace turnout::cli
