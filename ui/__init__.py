"""Page components: session state, scenario bar, forms, results. Only code using Streamlit."""
