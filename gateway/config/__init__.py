"""The configuration: what YAML may contain, and how it is read.

Read `models` first (every field, its unit and default). A file passes through `source` (text to
values with positions), `shorthand` (short forms to long ones), `models` (types) and `check` (all
problems together, in plain words); `load` reads the files. `explain` describes a configuration in
sentences, `render` shows problems as a compiler would, `schema` makes the JSON Schema for editors.
"""
