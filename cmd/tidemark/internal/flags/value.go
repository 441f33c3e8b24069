package flags

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// set sets the flag to the value of a text. A list gets the parts of the text as its elements.
// If more is true, it keeps the elements that it had.
func (f *Flag) set(text string, more bool) error {
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, text) {
		return fmt.Errorf("--%s must be one of %s but got %q",
			f.Name, strings.Join(f.Enum, ", "), text)
	}
	var err error
	switch {
	case f.isList():
		err = f.setList(strings.Split(text, ","), more)
	default:
		err = setText(f.value, text)
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", f.Name, err)
	}
	return nil
}

func (f *Flag) setList(parts []string, more bool) error {
	list := reflect.Zero(f.value.Type())
	if more {
		list = f.value
	}
	for _, part := range parts {
		if part == "" && len(parts) == 1 {
			break
		}
		element := reflect.New(f.value.Type().Elem()).Elem()
		if err := setText(element, part); err != nil {
			return err
		}
		list = reflect.Append(list, element)
	}
	f.value.Set(list)
	return nil
}

// setText sets value to that of a text. The empty text is the zero value.
func setText(value reflect.Value, text string) error {
	if value.Kind() == reflect.Pointer {
		element := reflect.New(value.Type().Elem())
		if err := setText(element.Elem(), text); err != nil {
			return err
		}
		value.Set(element)
		return nil
	}
	if text == "" {
		value.SetZero()
		return nil
	}
	if value.Type() == duration() {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("expected a time such as 10s or 1m30s but got %q", text)
		}
		value.SetInt(int64(d))
		return nil
	}
	return setKind(value, text)
}

func setKind(value reflect.Value, text string) error {
	switch value.Kind() { //nolint:exhaustive // see settable
	case reflect.String:
		value.SetString(text)
	case reflect.Bool:
		switch strings.ToLower(text) {
		case "true", "1", "yes":
			value.SetBool(true)
		case "false", "0", "no":
			value.SetBool(false)
		default:
			return fmt.Errorf("expected true or false but got %q", text)
		}
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, value.Type().Bits())
		if err != nil {
			return fmt.Errorf("expected a whole number but got %q", text)
		}
		value.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("expected a number but got %q", text)
		}
		value.SetFloat(n)
	}
	return nil
}

// setAny sets the flag to a value of a file: a text, a boolean, a number, or a list of those.
func (f *Flag) setAny(value any) error {
	if list, ok := value.([]any); ok && f.isList() {
		parts := make([]string, len(list))
		for i, part := range list {
			text, err := textOf(f.value.Type().Elem(), part)
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			parts[i] = text
		}
		return f.setList(parts, false)
	}
	text, err := textOf(f.value.Type(), value)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return f.set(text, false)
}

// textOf returns the text of a value of a file. It returns an error if the value does not fit t.
func textOf(t reflect.Type, value any) (string, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		if t.Kind() == reflect.Bool {
			return strconv.FormatBool(value), nil
		}
	case int, int64, uint64, float64:
		if t.Kind() != reflect.Bool && t.Kind() != reflect.String && t.Kind() != reflect.Slice &&
			t != duration() {
			return fmt.Sprint(value), nil
		}
	}
	return "", fmt.Errorf("%v is no %s", value, describeType(t))
}

func describeType(t reflect.Type) string {
	switch {
	case t == duration():
		return "time such as 10s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Slice:
		return "list"
	}
	return "number"
}
