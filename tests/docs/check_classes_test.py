#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/check_classes.py counts what it says, and fails where a class is too large or a ceiling too high."""
import importlib.util
import pathlib
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/check_classes.py"
spec = importlib.util.spec_from_file_location("check_classes", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def checked(text, path="core/a.h"):
    """Sizes by class, and the faults, of a tree with one header."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text)
        classes = tool.classes_of(root)
        sizes = {one.name: (one.size["methods"], one.size["fields"]) for one in classes}
        assert tool.main(root) == (1 if list(tool.faults_of(classes)) else 0)
        return sizes, list(tool.faults_of(classes))


def with_members(methods, fields):
    body = [f"  void m{i}();" for i in range(methods)] + [f"  int f{i}_ = 0;" for i in range(fields)]
    return "namespace turnout {\nclass A {\n" + "\n".join(body) + "\n};\n}\n"


COUNTED = """
namespace turnout {
template <class T, int N = (3 > 2)>
class A {
 public:
  explicit A(int);
  template <class U> A(U&& u) : x_(u) {}
  A(const A&) = delete;
  ~A();
  A& operator=(const A&) = delete;
  explicit operator bool() const noexcept { return x_ != 0; }
  friend bool operator==(const A&, const A&) = default;
  friend void stranger(A&);
  using Call = void (*)(int);
  enum class Kind { a, b };
  [[nodiscard]] bool method_1() const noexcept;
  bool method_1(int) const;  // an overload counts
  static void method_3();
  template <class U> void method_4(U u) { int local = u; (void)local; }
  void method_5(std::function<void(int)> a,
                int b) noexcept;
  auto method_6() -> int;
  struct Nested {
    int p, q;
    void m();
    struct Deeper { int r; };
  };

 private:
  static constexpr int kOne = 1, kTwo = 2;
  static constexpr std::array<int,
                              3> kThree{1, 2, 3};
  static const int kFour;
  static inline int field_1_ = 0;
  std::function<void(int, const std::string&)> field_2_ = nullptr;
  void (*field_3_)(int) = nullptr;
  std::array<std::byte, N * 2> field_4_{};
  int field_5_ = 0, x_ = 0;
  unsigned field_7_ : 3 = 0;
  Nested field_8_;
  struct { int u, v; } field_9_;
  const std::map<std::string, int>& field_10_;
};
template <> class A<int, 1> { int only_; };
template <class T, int N> void A<T, N>::method_3() {}
namespace { struct Hidden { int h; }; }
}
"""


def main():
    sizes, faults = checked(COUNTED)
    assert not faults, faults
    assert sizes["A::Nested"] == (1, 2) and sizes["A::Nested::Deeper"] == (0, 1), sizes
    assert sizes["Hidden"] == (0, 1), sizes

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "sim").mkdir()
        (root / "sim/a.h").write_text(COUNTED)
        both = [one.size for one in tool.classes_of(root) if one.name == "A"]
    assert both == [{"methods": 6, "fields": 10}, {"methods": 0, "fields": 1}], both  # and its specialization

    assert checked(with_members(40, 30)) == ({"A": (40, 30)}, [])
    _, faults = checked(with_members(41, 30))
    assert faults == ["core/a.h:2: A has 41 methods; at most 40 are allowed"], faults
    _, faults = checked(with_members(40, 31), path="provider/deep/a.cpp")
    assert faults == ["provider/deep/a.cpp:2: A has 31 fields; at most 30 are allowed"], faults
    assert checked(with_members(99, 99), path="base/a.h") == ({}, [])  # not looked at



if __name__ == "__main__":
    main()
