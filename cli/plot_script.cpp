#include "cli/plot_script.h"

#include <filesystem>
#include <system_error>

namespace turnout::cli {

std::string plot_script() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path installed =
      self.parent_path().parent_path() / "share" / "turnout" / "plot.py";
  for (const std::filesystem::path& path :
       {installed, std::filesystem::path(TURNOUT_SOURCE_TOOLS) / "plot.py"}) {
    if (std::filesystem::is_regular_file(path, error)) return path.string();
  }
  return {};
}

}  // namespace turnout::cli
